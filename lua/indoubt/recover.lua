--[[ indoubt.recover: find out what became of a call.
WHY      silence decides nothing: this does, once, and everybody who asks later is told the same.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <result> | compensate <undo_id> | reject schema never_started | in_doubt lease_live
]]
--#include "indoubt/fence.lua"
--#include "include/clock.lua"
local a, malformed = begin('indoubt.recover', KEYS[3], KEYS[2], {run = 'str', key = 'str', epoch = 'int'})
if not a then return malformed end
return answer(indoubt.recover(open_row(KEYS[1], indoubt.fields(a)), a, now_ms(open_row(KEYS[2], {'clock'}))))
