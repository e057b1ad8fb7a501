--[[ join.expire: end a case that waits for an attempt which will not come.
WHY      what is missing makes a case inconclusive, never a pass.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | reject schema unknown_case not_open
]]
--#include "join/fence.lua"
local a, malformed = begin('join.expire', KEYS[3], KEYS[2], {case = 'str'})
if not a then return malformed end
return answer(join.expire(open_row(KEYS[1], join.fields(a.case)), a))
