--[[ outbox.advance: give a generation of an intent up.
WHY      what the planner no longer waits for must not bind, and must not run a second time either.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <gen state> | reject schema unknown_intent stale_gen
]]
--#include "outbox/fence.lua"
local a, malformed = begin('outbox.advance', KEYS[3], KEYS[2], {run = 'str', intent_id = 'str', gen = 'int'})
if not a then return malformed end
return answer(outbox.advance(open_row(KEYS[1], outbox.fields(a.intent_id)), a))
