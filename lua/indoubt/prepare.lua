--[[ indoubt.prepare: say that the effect is about to start.
WHY      who is not told yes here starts nothing; who is, starts it once.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | reject schema already_decided lease_mismatch stale_epoch lease_expired
         | in_doubt already_prepared
]]
--#include "indoubt/fence.lua"
--#include "include/clock.lua"
local a, malformed = begin('indoubt.prepare', KEYS[3], KEYS[2], {run = 'str', lease_id = 'str', key = 'str', epoch = 'int'})
if not a then return malformed end
return answer(indoubt.prepare(open_row(KEYS[1], indoubt.fields(a)), a, now_ms(open_row(KEYS[2], {'clock'}))))
