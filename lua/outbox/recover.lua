--[[ outbox.recover: settle an intent whose executor is silent.
WHY      a call that never left is tried again, one that may have landed is undone: never the other way round.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <state> | duplicate <state observation> | compensate <state undo_id>
         | reject schema unknown_intent stuck | in_doubt awaiting_ack
]]
--#include "outbox/fence.lua"
--#include "include/clock.lua"
local a, malformed = begin('outbox.recover', KEYS[3], KEYS[2], {run = 'str', intent_id = 'str'})
if not a then return malformed end
local batch = open_row(KEYS[2], outbox.batch_fields)
return answer(outbox.recover(open_row(KEYS[1], outbox.fields(a.intent_id)), batch, a, now_ms(batch)))
