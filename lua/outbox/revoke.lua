--[[ outbox.revoke: undo what was committed.
WHY      a conversation that is given up must leave nothing behind that its successor does not know of.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <undo_id> | duplicate <undo_id> | reject schema unknown_intent stale_gen not_committed stuck
]]
--#include "outbox/fence.lua"
local a, malformed = begin('outbox.revoke', KEYS[3], KEYS[2], {run = 'str', intent_id = 'str', gen = 'int'})
if not a then return malformed end
local batch = open_row(KEYS[2], outbox.batch_fields)
return answer(outbox.revoke(open_row(KEYS[1], outbox.fields(a.intent_id)), batch, a))
