--[[ outbox.claim: take an intent to execute it.
WHY      one job may reach two workers; one of them calls the tool.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <tool args> | duplicate <the same>
         | reject schema unknown_intent stale_gen not_queued executor_reused
]]
--#include "outbox/fence.lua"
local a, malformed = begin('outbox.claim', KEYS[3], KEYS[2], {run = 'str', intent_id = 'str', gen = 'int', executor = 'str'})
if not a then return malformed end
return answer(outbox.claim(open_row(KEYS[1], outbox.fields(a.intent_id)), a))
