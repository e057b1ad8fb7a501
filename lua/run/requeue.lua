--[[ run.requeue: emit a run's message anew.
WHY      a group that was recreated, or a message that could not be read, leaves a run that nobody will ever be
         given. The row names the one entry that counts: the old one, should it come back, is refused.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  stream     evb:{live.0}:b:<batch>:<stream>           STREAM
         4  review     evb:{live.0}:b:<batch>:review             SET
         5  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <entry> | duplicate | reject schema no_batch ended still_known
]]
--#include "include/known.lua"
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
if is_known(KEYS[3], a.group, a.entry) then return refused(reject('still_known')) end

-- writes
redis.call('XDEL', KEYS[3], a.entry)
put(run, 'entry', emit(KEYS[3], a.run))
return done(commit({entry = run.data.entry}))
