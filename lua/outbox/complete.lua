--[[ outbox.complete: record what became of a call.
WHY      an outcome counts once, and only from the executor that called under the live generation.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <state> | duplicate <state>
         | reject schema unkeyed unknown_intent stale_gen already_final not_claimed | in_doubt missing_echo
]]
--#include "outbox/fence.lua"
local a, malformed = begin('outbox.complete', KEYS[3], KEYS[2], {run = 'str'})
if not a then return malformed end
if not outbox.keyed(a) then return refused(reject('unkeyed')) end
if wrong(a, {ok = 'bool', echo = 'str?', observation = 'str'}) then return refused(reject('schema')) end
return answer(outbox.complete(open_row(KEYS[1], outbox.fields(a.intent_id)), a))
