--[[ run.heartbeat: keep alive what a consumer holds.
WHY      an entry's idle time is the lease's clock. A live holder takes its entry back from a consumer that took
         it without claiming; a holder that was fenced learns it here.
KEYS     1  batch      evb:{live.0}:b:<batch>:batch              HASH
         2  stream     evb:{live.0}:b:<batch>:<stream>           STREAM
         3  history    evb:{live.0}:b:<batch>:history            STREAM
         4… rows       evb:{live.0}:b:<batch>:run:<run>          HASH
ARGV     1 envelope    msgpack   2… items
RETURNS  commit | reject schema no_batch server_changed stale_lease stale_epoch
]]
--#include "include/run.lua"
local a, malformed = begin('run.heartbeat', KEYS[3], KEYS[1], {
  server = 'str?', group = 'str', consumer = 'str', leases = 'int', entries = 'int',
})
if not a then return malformed end
if #ARGV ~= 1 + 4 * a.leases + a.entries or #KEYS ~= 3 + a.leases or a.leases > 500 or a.entries > 500
    or (a.group ~= 'worker' and a.group ~= 'scorer') then
  return refused(reject('schema'))
end
for i = 2 + 4 * a.leases, #ARGV do
  if not is_entry_id(ARGV[i]) then return refused(reject('schema')) end
end
local batch = open_batch(KEYS[1], 'heartbeat_ms')
if elsewhere(batch, a) then return refused(reject('server_changed')) end
local floor, replies, renewed = floor_of(batch), {}, {}
local counts = {}
local is_fenced = a.group == 'worker' and batch.data.heartbeat_ms -- a scorer has no workspace of the run's
local now = is_fenced and now_ms(batch)
for i = 1, a.leases do
  local at = 4 * i - 2
  local beat = {run = ARGV[at], lease_id = ARGV[at + 1], gen = tonumber(ARGV[at + 2])}
  local fields = {'state', 'entry', 'lease', 't.gen', 's.lease', 'h.epoch'}
  if is_fenced then fields[#fields + 1] = 'b.ws:' .. beat.run end
  local row = open_row(KEYS[3 + i], fields)
  local is_live = a.group == 'worker' and holder_is_live or scorer_is_live
  local d, by, args = commit(), call.name, beat
  if not is_live(row, beat, floor) then
    d = reject('stale_lease')
  elseif is_fenced then
    by, args = 'sandbox.heartbeat', {workspace = beat.run, epoch = tonumber(ARGV[at + 3])}
    d = sandbox.heartbeat(row, batch, args, now)
  end
  if d.verb == 'commit' then
    renewed[#renewed + 1] = row.data.entry
  else
    step(by, d, args)
    local refused_as = 'refused:' .. d.reason
    counts[refused_as] = (counts[refused_as] or 0) + 1
  end
  replies[i] = reply(d, d.verb == 'commit' and call.name or by)
end
for i = 1, a.entries do
  local entry = ARGV[1 + 4 * a.leases + i]
  if owns(KEYS[2], a.group, entry, a.consumer) then renewed[#renewed + 1] = entry end
end

-- writes
if #renewed > 0 then
  local claim = {'XCLAIM', KEYS[2], a.group, a.consumer, '0'}
  for _, entry in ipairs(renewed) do claim[#claim + 1] = entry end
  claim[#claim + 1] = 'JUSTID'
  in_group(unpack(claim))
end
if is_fenced then write_rows() end
-- A beat that kept everything alive is no decision, and is not recorded; one that found a lease gone is.
if #call.parts > 0 then
  for field, count in pairs(counts) do redis.call('HINCRBY', KEYS[1], field, count) end
  record(call.parts)
end
return replies
