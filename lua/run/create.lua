--[[ run.create: declare a batch.
WHY      a batch is what it was declared to be: a second declaration must be the same or be refused.
KEYS     1  batch      evb:{live.0}:b:<batch>:batch              HASH
         2  desk       evb:{live.0}:b:<batch>:desk:runs          HASH
         3  registry   evb:{live.0}:batches                      HASH
         4  history    evb:{live.0}:b:<batch>:history            STREAM
         5  runs       evb:{live.0}:b:<batch>:runs               STREAM
         6  scores     evb:{live.0}:b:<batch>:scores             STREAM
         7  results    evb:{live.0}:b:<batch>:results            STREAM
         8  tools      evb:{live.0}:b:<batch>:tools              STREAM
         9  desk_model evb:{live.0}:b:<batch>:desk:model         HASH
         10 desk_judge evb:{live.0}:b:<batch>:desk:judge         HASH
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate <incarnation> | reject schema batch_mismatch pruned <tombstone>
]]
--#include "include/run.lua"
--#include "include/tombstone.lua"
local a, malformed = begin('run.create', KEYS[4], KEYS[1], {
  server = 'str?', plane = 'str', batch = 'str', declared = 'str', incarnation = 'str', bins = 'str', intended = 'int1',
  quorum = 'int1',
  bound = 'int1', max_in_flight = 'int1', max_deliveries = 'int1', reclaim_ms = 'int1', judge_policy = 'str',
  replay_budget = 'int', spec = 'str',
  capacity = 'int?', ack_bound_ms = 'int1?', inverses = 'str?', compute_retries = 'int?', model_retries = 'int?',
  heartbeat_ms = 'int1?', schemas = 'str?', budget = 'int?', budget_epoch = 'int?', model_slots = 'int1?',
  judge_slots = 'int1?', source = 'str?',
})
if not a then return malformed end
local readable, bins = pcall(cjson.decode, a.bins)
if not readable or type(bins) ~= 'table' or #bins == 0 then return refused(reject('schema')) end
for _, bin in ipairs(bins) do
  if not is_text(bin) then return refused(reject('schema')) end
end
local batch = open_row(KEYS[1], {'declared', 'incarnation'})
if batch.data.declared then
  if batch.data.declared == a.declared then return again(duplicate({incarnation = batch.data.incarnation})) end
  return refused(reject('batch_mismatch'))
end
-- The name stays taken: another batch under it would pass for the one whose number was quoted.
local tombstone = tombstone_of(KEYS[3], a.batch)
if tombstone then return refused(reject('pruned', {tombstone = tombstone})) end
local desk = open_row(KEYS[2], {'bound'})
for _, field in ipairs({'declared', 'incarnation', 'intended', 'quorum', 'max_in_flight', 'max_deliveries',
    'judge_policy', 'replay_budget', 'spec'}) do
  put(batch, field, a[field])
end
-- What other fences are configured with; a batch that does not use one leaves its limits out.
for _, field in ipairs({'capacity', 'ack_bound_ms', 'inverses', 'compute_retries', 'model_retries', 'heartbeat_ms',
    'schemas', 'budget', 'budget_epoch', 'source'}) do
  if a[field] then put(batch, field, a[field]) end
end
-- Calls and windows are counted against a budget also where none was declared; a full shadow plane is one that has as
-- many runs as the batch may have at once; a verdict on a tree is the name of a bin.
if (a.compute_retries or a.judge_slots) and not a.budget then put(batch, 'budget', MAX_INT) end
if a.plane == 'shadow' and not a.capacity then put(batch, 'capacity', a.bound) end
if not a.schemas then put(batch, 'schemas', '["bin/1"]') end
if a.server then
  put(batch, 'server', a.server)
  put(batch, 'lives', 1)
  put(batch, 'life:1', a.server)
end
put(batch, 'status', 'open')
put(batch, 'cursor', 0)
for _, bin in ipairs(bins) do put(batch, 'bin:' .. bin, 0) end
local function open_for(desk, bound)
  put(desk, 'bound', bound)
  put(desk, 'reclaim_ms', a.reclaim_ms)
end
open_for(desk, a.bound)
if a.model_slots then open_for(open_row(KEYS[9], {'bound'}), a.model_slots) end
if a.judge_slots then open_for(open_row(KEYS[10], {'bound'}), a.judge_slots) end

-- writes
redis.call('HSET', KEYS[3], a.batch, 'open')
redis.call('XGROUP', 'CREATE', KEYS[5], 'worker', '0', 'MKSTREAM')
redis.call('XGROUP', 'CREATE', KEYS[6], 'scorer', '0', 'MKSTREAM')
redis.call('XGROUP', 'CREATE', KEYS[7], 'planner', '0', 'MKSTREAM')
redis.call('XGROUP', 'CREATE', KEYS[8], 'worker', '0', 'MKSTREAM')
return done(commit())
