--[[ run.tool_requeue: emit an effect's message anew.
WHY      as for runs: a message that was lost leaves an effect that nobody will ever be given, and a close that waits
         for it. The row names the one entry that counts: the old one, should it come back, is refused.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  tools      evb:{live.0}:b:<batch>:tools              STREAM
         4  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <entry> | duplicate | reject schema no_batch ended still_known
]]
--#include "include/effects.lua"
--#include "include/known.lua"
local a, malformed = begin('run.tool_requeue', KEYS[4], KEYS[2], {run = 'str', intent_id = 'str', entry = 'str'})
if not a then return malformed end
if not is_entry_id(a.entry) then return refused(reject('schema')) end
local run = effects.open_run(KEYS[1], a.intent_id)
local field = 'o.e:' .. a.intent_id
if not run.data[field] then return refused(reject('ended')) end
if run.data[field] ~= a.entry then return again(duplicate()) end
if is_known(KEYS[3], 'worker', a.entry) then return refused(reject('still_known')) end

-- writes
redis.call('XDEL', KEYS[3], a.entry)
drop(run, field)
effects.touched[1] = a.intent_id
effects.write(run, a.run, KEYS[3])
return done(commit({entry = run.data[field]}))
