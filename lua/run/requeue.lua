--[[ run.requeue: emit a run's message anew.
WHY      a group that was recreated, or a message that could not be read, leaves a run that nobody will ever be
         given. The row names the one entry that counts: the old one, should it come back, is refused.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  stream     evb:{live.0}:b:<batch>:<stream>           STREAM
         4  review     evb:{live.0}:b:<batch>:review             SET
         5  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <entry> | duplicate | reject schema ended still_known
]]
--#include "include/run.lua"
local a, malformed = begin('run.requeue', KEYS[5], KEYS[2], {
  run = 'str', group = 'str', entry = 'str',
})
if not a then return malformed end
if not is_entry_id(a.entry) then return refused(reject('schema')) end
local run = open_row(KEYS[1])
local waits = {worker = {queued = true, running = true}, scorer = {sealed = true, scoring = true}}
if not (waits[a.group] and waits[a.group][run.data.state or '']) then return refused(reject('ended')) end
if run.data.entry ~= a.entry then return again(duplicate()) end
-- A parked score waits for a rebind, not for a message: a second scorer would sign while it is still parked.
if redis.call('SISMEMBER', KEYS[4], a.run) == 1 then return refused(reject('still_known')) end
local pending = in_group('XPENDING', KEYS[3], a.group, a.entry, a.entry, 1)
if #pending > 0 then return refused(reject('still_known')) end
local delivered = '0-0'
for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[3])) do
  local is_ours = false
  for i = 1, #group, 2 do
    if group[i] == 'name' then is_ours = group[i + 1] == a.group end
    if group[i] == 'last-delivered-id' and is_ours then delivered = group[i + 1] end
  end
end
local waiting = redis.call('XRANGE', KEYS[3], '(' .. delivered, '+', 'COUNT', 1)[1]
if waiting and #redis.call('XRANGE', KEYS[3], a.entry, a.entry) > 0 then
  local function parts(id) local ms, n = id:match('^(%d+)-(%d+)$'); return tonumber(ms), tonumber(n) end
  local ms, n = parts(a.entry)
  local first_ms, first_n = parts(waiting[1])
  if ms > first_ms or (ms == first_ms and n >= first_n) then return refused(reject('still_known')) end
end

-- writes
redis.call('XDEL', KEYS[3], a.entry)
put(run, 'entry', emit(KEYS[3], a.run))
return done(commit({entry = run.data.entry}))
