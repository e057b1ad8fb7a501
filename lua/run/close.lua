--[[ run.close: close the batch.
WHY      the number exists from here on, over a set that can no longer move. Whoever computed the snapshot shows
         by its count that it was computed from all of it.
KEYS     1  batch      evb:{live.0}:b:<batch>:batch              HASH
         2  registry   evb:{live.0}:batches                      HASH
         3  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <snapshot_id accepted> | duplicate <the same> | reject schema no_batch server_changed below_quorum
         | in_doubt not_drained in_flight
]]
--#include "include/run.lua"
local a, malformed = begin('run.close', KEYS[3], KEYS[1], {
  server = 'str?', batch = 'str', snapshot_id = 'str', accepted = 'int',
})
if not a then return malformed end
local batch = open_batch(KEYS[1], 'accepted', 'holes', 'intended', 'quorum', 'effects_open', 'compute_retries')
if elsewhere(batch, a) then return refused(reject('server_changed')) end
local was_open = not histogram.closed(batch)
-- A tool's call, or its undo, may outlive its run. Until it has ended nobody knows what the batch did.
local ended = int(batch, 'accepted') + int(batch, 'holes')
local all_ended = batch.data.status == 'drained' and ended == int(batch, 'intended')
if all_ended and int(batch, 'effects_open') > 0 then return refused(in_doubt('in_flight')) end
local d = histogram.close(batch, a)
if was_open and histogram.closed(batch) then redis.call('HSET', KEYS[2], a.batch, batch.data.status) end
if d.verb == 'duplicate' then return again(d) end
if not step('histogram.close', d) then return refused() end
if batch.data.compute_retries then step('completion.close', completion.close(batch)) end
return done(d)
