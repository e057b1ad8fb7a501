--[[ run.yield: hand a run back at once.
WHY      a worker that is told to stop must not make others wait for its lease to run out, nor make the run look
         like poison. One that is told so by its own run must not be told so for ever. Nor must a machine that is
         unfit use up a run, or a run all machines: `machine` says whose fault it was, where it was not a stop;
         `seen`, that it finds by itself what is wrong with it.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  desk_model evb:{live.0}:b:<batch>:desk:model         HASH
         4  runs       evb:{live.0}:b:<batch>:runs               STREAM
         5  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate | reject schema no_batch server_changed stale_lease its_own_doing
]]
--#include "include/run.lua"
local a, malformed = begin('run.yield', KEYS[5], KEYS[2], {
  server = 'str?', run = 'str', lease_id = 'str', gen = 'int1', machine = 'str?', seen = 'int?',
})
if not a then return malformed end
if a.machine and not is_word(a.machine) then return refused(reject('schema')) end
local run = open_row(KEYS[1])
local batch = open_batch(KEYS[2], 'compute_retries', 'heartbeat_ms', 'n:running', 'n:queued')
if elsewhere(batch, a) then return refused(reject('server_changed')) end
if ended_by(run, 'yield', a.lease_id) then return again(duplicate()) end
if not holder_is_live(run, a, floor_of(batch)) then return refused(reject('stale_lease')) end
if a.machine and not note_unfit(run, 'unfit', a.machine, int(batch, 'n:running') == 1, a.seen) then
  return refused(reject('its_own_doing'))
end
settle(run, batch, 'model', KEYS[3])
fence_holder(run, batch, a.run)

-- writes
hand_back(run, a.run, KEYS[4], 'worker', 'attempts', 'yields', a.machine)
end_lease(run, 'yield', a.lease_id)
move(run, batch, 'queued')
return done(commit())
