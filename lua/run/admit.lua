--[[ run.admit: admit the next runs while there is room.
WHY      two planners that wake up together must not admit a run twice, nor pass the bound together:
         the cursor is compared, so the slower one finds it moved. Room is the plane's, the desk's and the budget's.
KEYS     1  batch      evb:{live.0}:b:<batch>:batch              HASH
         2  desk       evb:{live.0}:b:<batch>:desk:runs          HASH
         3  planes     evb:{live.0}:b:<batch>:plane              HASH
         4  runs       evb:{live.0}:b:<batch>:runs               STREAM
         5  results    evb:{live.0}:b:<batch>:results            STREAM
         6  index      evb:{live.0}:b:<batch>:index              LIST
         7  history    evb:{live.0}:b:<batch>:history            STREAM
         8… rows       evb:{live.0}:b:<batch>:run:<run>          HASH
ARGV     1 envelope    msgpack   2… items
RETURNS  commit <admitted cursor why_stopped> | duplicate <cursor>
         | reject schema no_batch server_changed after_close capacity bound_full over_budget step_in_flight step_committed lease_reused already_bound admission_reused plane_key duplicate_key
]]
--#include "include/room.lua"
local a, malformed = begin('run.admit', KEYS[7], KEYS[1], {
  server = 'str?', plane = 'str', command_id = 'str', consumer = 'str', cursor = 'int', runs = 'int', entries = 'int',
  candidate = 'str', judge = 'str', expected = 'int?',
})
if not a then return malformed end
local batch = open_batch(KEYS[1], 'cursor', 'intended', 'capacity', 'budget', 'spent', 'reserved', 'n:queued')
if elsewhere(batch, a) then return refused(reject('server_changed')) end
if #ARGV ~= 1 + a.runs + a.entries or #KEYS ~= 7 + a.runs or a.runs > 100 then return refused(reject('schema')) end
if histogram.closed(batch) then return refused(reject('after_close')) end
if int(batch, 'cursor') ~= a.cursor then return again(duplicate({cursor = int(batch, 'cursor')})) end
if a.cursor + a.runs > int(batch, 'intended') then return refused(reject('schema')) end
local ids, entries = named_runs(a), read_entries(a)
if not ids or not entries then return refused(reject('schema')) end

local room = open_room(a, batch, KEYS[2], KEYS[3], ids)
local admitted, stopped = {}, nil
-- Nearly always none of them is there: that is one question for all, and no row is read.
local row_at = a.runs > 0 and redis.call('EXISTS', unpack(KEYS, 8, 7 + a.runs)) == 0 and new_row or open_row
for i, id in ipairs(ids) do
  local run = row_at(KEYS[7 + i])
  -- A run that was named a hole before has no judge; the cursor never comes back to it.
  if run.data.state and not run.data['j.epoch'] then return refused(reject('schema')) end
  stopped = let_in(room, a, run, id, i)
  if stopped and not NO_ROOM[stopped.d.reason] then return refused(stopped.d, stopped.by, stopped.args) end
  if stopped then break end
  move(run, batch, 'queued')
  admitted[i] = {run = run, id = id}
end
if a.runs == 0 then
  -- Nothing to admit: only the wake-ups are taken off, which is no decision.
  for _, entry in ipairs(entries) do acknowledge(KEYS[5], 'planner', entry) end
  return reply(commit({admitted = 0, cursor = a.cursor, why_stopped = 'none'}), call.name)
end
if #admitted == 0 and stopped then return refused(stopped.d, stopped.by, stopped.args) end

-- writes
local names = {}
for i, one in ipairs(admitted) do
  put(one.run, 'entry', emit(KEYS[4], one.id))
  names[i] = one.id
end
redis.call('RPUSH', KEYS[6], unpack(names))
-- Results are wake-ups: any planner may take them off, and taking one twice changes nothing.
for _, entry in ipairs(entries) do acknowledge(KEYS[5], 'planner', entry) end
local why = stopped and stopped.d.reason or 'none'
if move_cursor(batch, a, #admitted) then why = 'drained' end
return done(commit({admitted = #admitted, cursor = int(batch, 'cursor'), why_stopped = why}))
