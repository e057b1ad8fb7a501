--[[ outbox.sent: say that the call is about to leave.
WHY      from here on silence is doubt: the call may have landed.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate | reject schema unknown_intent stale_gen not_claimed
]]
--#include "outbox/fence.lua"
--#include "include/clock.lua"
local a, malformed = begin('outbox.sent', KEYS[3], KEYS[2], {run = 'str', intent_id = 'str', gen = 'int', executor = 'str'})
if not a then return malformed end
local now = now_ms(open_row(KEYS[2], outbox.batch_fields))
return answer(outbox.sent(open_row(KEYS[1], outbox.fields(a.intent_id)), a, now))
