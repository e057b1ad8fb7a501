--[[ run.heartbeat: keep alive what a consumer holds.
WHY      an entry's idle time is the lease's clock. A live holder takes its entry back from a consumer that took
         it without claiming; a holder that was fenced learns it here.
KEYS     1  batch      evb:{live.0}:b:<batch>:batch              HASH
         2  stream     evb:{live.0}:b:<batch>:<stream>           STREAM
         3  history    evb:{live.0}:b:<batch>:history            STREAM
         4… rows       evb:{live.0}:b:<batch>:run:<run>          HASH
ARGV     1 envelope    msgpack   2… items
RETURNS  commit | reject schema server_changed stale_lease
]]
--#include "include/run.lua"
local a, malformed = begin('run.heartbeat', KEYS[3], KEYS[1], {
  server = 'str?', group = 'str', consumer = 'str', leases = 'int', entries = 'int',
})
if not a then return malformed end
if #ARGV ~= 1 + 3 * a.leases + a.entries or #KEYS ~= 3 + a.leases or a.leases > 500 or a.entries > 500
    or (a.group ~= 'worker' and a.group ~= 'scorer') then
  return refused(reject('schema'))
end
for i = 2 + 3 * a.leases, #ARGV do
  if not is_entry_id(ARGV[i]) then return refused(reject('schema')) end
end
local batch = open_batch(KEYS[1])
if elsewhere(batch, a) then return refused(reject('server_changed')) end
local floor, replies, renewed = floor_of(batch), {}, {}
for i = 1, a.leases do
  local at = 3 * i - 1
  local held = {run = ARGV[at], lease_id = ARGV[at + 1], gen = tonumber(ARGV[at + 2])}
  local row = open_row(KEYS[3 + i], {'state', 'entry', 't.lease', 't.gen', 's.lease', 'h.epoch'})
  local live
  if a.group == 'worker' then
    live = row.data.state == 'running' and transcript.is_live(row, held, floor)
  else
    live = scorer_is_live(row, held, floor)
  end
  if live then
    renewed[#renewed + 1] = row.data.entry
    replies[i] = reply(commit(), call.name)
  else
    step('run.heartbeat', reject('stale_lease'), held)
    replies[i] = reply(reject('stale_lease'), call.name)
  end
end
for i = 1, a.entries do
  local entry = ARGV[1 + 3 * a.leases + i]
  if owns(KEYS[2], a.group, entry, a.consumer) then renewed[#renewed + 1] = entry end
end

-- writes
if #renewed > 0 then
  local claim = {'XCLAIM', KEYS[2], a.group, a.consumer, '0'}
  for _, entry in ipairs(renewed) do claim[#claim + 1] = entry end
  claim[#claim + 1] = 'JUSTID'
  in_group(unpack(claim))

end
-- A beat that kept everything alive is no decision, and is not recorded; one that found a lease gone is.
if #call.parts > 0 then
  redis.call('HINCRBY', KEYS[1], 'refused:stale_lease', #call.parts)
  record(call.parts)
end
return replies
