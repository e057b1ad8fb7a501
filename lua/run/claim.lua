--[[ run.claim: hand a delivered run to one worker.
WHY      the pending list delivers at least once: whoever claims takes the run away from every earlier holder,
         in all fences at once, and whoever comes late is told so.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  leases     evb:{live.0}:b:<batch>:leases             HASH
         4  desk       evb:{live.0}:b:<batch>:desk:runs          HASH
         5  runs       evb:{live.0}:b:<batch>:runs               STREAM
         6  results    evb:{live.0}:b:<batch>:results            STREAM
         7  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <gen attempts head length unresolved> | duplicate <the same>
         | reject schema server_changed lease_reused not_owner ended duplicate_entry sealed poison after_close unknown_run abandoned already_scored stale_epoch
]]
--#include "include/run.lua"
local a, malformed = begin('run.claim', KEYS[7], KEYS[2], {
  server = 'str?', run = 'str', lease_id = 'str', entry = 'str', consumer = 'str',
})
if not a then return malformed end
if not is_entry_id(a.entry) then return refused(reject('schema')) end
local run, batch = open_row(KEYS[1]), open_batch(KEYS[2], 'max_deliveries', 'n:queued', 'n:running')
if elsewhere(batch, a) then return refused(reject('server_changed')) end
local leases = open_row(KEYS[3], {a.lease_id})
local function licence(d)
  local answer = {attempts = int(run, 'attempts')}
  for name, value in pairs(d.answer) do answer[name] = value end
  return answer
end
local floor = floor_of(batch)
if run.data.state == 'running' and run.data['t.lease'] == a.lease_id and int(run, 't.gen') > floor then
  return again(duplicate(licence(transcript.lease(run, leases, a, floor))))
end
-- A late copy of an old claim: the entry may be its successor's by now, so it acknowledges nothing.
if leases.data[a.lease_id] then return refused(reject('lease_reused')) end
if not owns(KEYS[5], 'worker', a.entry, a.consumer) then return refused(reject('not_owner')) end
if (run.data.state ~= 'queued' and run.data.state ~= 'running') or histogram.closed(batch) then
  acknowledge(KEYS[5], 'worker', a.entry)
  return refused(reject('ended'))
end
if run.data.entry ~= a.entry then
  acknowledge(KEYS[5], 'worker', a.entry)
  return refused(reject('duplicate_entry'))
end
if int(run, 'attempts') >= int(batch, 'max_deliveries') then
  local desk = open_desk(KEYS[4], 'l:' .. run.data.place)
  if not make_hole(run, batch, desk, a.run, 'poison', 'every worker that held it went silent') then return refused() end
  emit(KEYS[6], a.run)
  acknowledge(KEYS[5], 'worker', a.entry)
  return done(reject('poison'))
end
-- A lease that a restart of the server made void is nobody's failure.
local voided = run.data['t.lease'] and int(run, 't.gen') <= floor
local d = transcript.lease(run, leases, a, floor)
if not step('transcript.lease', d) then return refused() end
if not voided then add(run, 'attempts', 1) end
put(run, 'consumer', a.consumer)
if run.data.state == 'queued' then move(run, batch, 'running') end
return done(commit(licence(d)))
