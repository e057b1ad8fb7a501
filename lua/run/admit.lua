--[[ run.admit: admit the next runs while there is room.
WHY      two planners that wake up together must not admit a run twice, nor pass the bound together:
         the cursor is compared, so the slower one finds it moved.
KEYS     1  batch      evb:{live.0}:b:<batch>:batch              HASH
         2  desk       evb:{live.0}:b:<batch>:desk:runs          HASH
         3  runs       evb:{live.0}:b:<batch>:runs               STREAM
         4  results    evb:{live.0}:b:<batch>:results            STREAM
         5  index      evb:{live.0}:b:<batch>:index              LIST
         6  history    evb:{live.0}:b:<batch>:history            STREAM
         7… rows       evb:{live.0}:b:<batch>:run:<run>          HASH
ARGV     1 envelope    msgpack   2… items
RETURNS  commit <admitted cursor why_stopped> | duplicate <cursor>
         | reject schema server_changed after_close bound_full step_in_flight step_committed lease_reused already_bound
]]
--#include "include/run.lua"
local a, malformed = begin('run.admit', KEYS[6], KEYS[1], {
  server = 'str?', command_id = 'str', consumer = 'str', cursor = 'int', runs = 'int', entries = 'int', candidate = 'str',
  judge = 'str',
})
if not a then return malformed end
local batch = open_batch(KEYS[1], 'cursor', 'intended', 'n:queued')
if elsewhere(batch, a) then return refused(reject('server_changed')) end
if #ARGV ~= 1 + a.runs + a.entries or #KEYS ~= 6 + a.runs or a.runs > 100 then return refused(reject('schema')) end
if histogram.closed(batch) then return refused(reject('after_close')) end
if int(batch, 'cursor') ~= a.cursor then return again(duplicate({cursor = int(batch, 'cursor')})) end
if a.cursor + a.runs > int(batch, 'intended') then return refused(reject('schema')) end
local seen = {}
for i = 1, a.runs do
  if seen[ARGV[1 + i]] then return refused(reject('schema')) end
  seen[ARGV[1 + i]] = true
end
for i = 2 + a.runs, #ARGV do
  if not is_entry_id(ARGV[i]) then return refused(reject('schema')) end
end

-- Each run's place is named by the command and its position: random, and the same when the command is sent again.
local leases = {}
for i = 1, a.runs do leases[i] = 'l:' .. a.command_id .. '.' .. i end
local desk = open_desk(KEYS[2], unpack(leases))
local admitted, stopped = {}, nil
for i = 1, a.runs do
  local run, run_id = open_row(KEYS[6 + i]), ARGV[1 + i]
  local place = {step = run_id, lease = a.command_id .. '.' .. i}
  -- A run that was named a hole before has no judge; the cursor never comes back to it.
  if run.data.state and not run.data['j.epoch'] then return refused(reject('schema')) end
  local acquired = admission.acquire(desk, run, place)
  if acquired.reason == 'bound_full' then
    stopped = {d = acquired, by = 'admission.acquire', args = place}
    break
  end
  if acquired.verb ~= 'commit' then return refused(acquired, 'admission.acquire', place) end
  step('admission.acquire', acquired, place)
  local token = {run = run_id, candidate = a.candidate, judge = a.judge, epoch = 1}
  if not step('judge.mint', judge.mint(run, token), token) then return refused() end
  put(run, 'place', place.lease)
  move(run, batch, 'queued')
  admitted[i] = {run = run, id = run_id}
end
if a.runs == 0 then
  -- Nothing to admit: only the wake-ups are taken off, which is no decision.
  for i = 1, a.entries do acknowledge(KEYS[4], 'planner', ARGV[1 + i]) end
  return reply(commit({admitted = 0, cursor = a.cursor, why_stopped = 'none'}), call.name)
end
if #admitted == 0 and stopped then return refused(stopped.d, stopped.by, stopped.args) end

-- writes
for _, one in ipairs(admitted) do
  put(one.run, 'entry', emit(KEYS[3], one.id))
  redis.call('RPUSH', KEYS[5], one.id)
end
for i = 1, a.entries do
  -- Results are wake-ups: any planner may take them off, and taking one twice changes nothing.
  acknowledge(KEYS[4], 'planner', ARGV[1 + a.runs + i])
end
put(batch, 'cursor', a.cursor + #admitted)
local why = stopped and 'bound_full' or 'none'
if int(batch, 'cursor') == int(batch, 'intended') then
  step('histogram.drain', histogram.drain(batch))
  why = 'drained'
end
return done(commit({admitted = #admitted, cursor = int(batch, 'cursor'), why_stopped = why}))
