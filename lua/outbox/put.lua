--[[ outbox.put: announce one side effect of a planner's step.
WHY      a planner that was restarted, or asked twice, must find its effect and not make a second one.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack   2 args       canonical JSON text
RETURNS  commit <gen state tool args observation> | duplicate <the same> | reject schema args_mismatch
]]
--#include "outbox/fence.lua"
local a, malformed = begin('outbox.put', KEYS[3], KEYS[2], {run = 'str', intent_id = 'str', gen = 'int', tool = 'str'})
if not a then return malformed end
a.args = ARGV[2]
if not outbox.is_object(a.args) then return refused(reject('schema')) end
return answer(outbox.put(open_row(KEYS[1], outbox.fields(a.intent_id)), a))
