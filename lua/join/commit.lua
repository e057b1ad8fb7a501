--[[ join.commit: give a case its verdict.
WHY      a verdict on the first answer is a verdict without the others.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <remaining> | duplicate <remaining> | reject schema already_committed not_joined
]]
--#include "join/fence.lua"
local a, malformed = begin('join.commit', KEYS[3], KEYS[2], {case = 'str', verdict = 'str'})
if not a then return malformed end
return answer(join.commit(open_row(KEYS[1], join.fields(a.case)), open_row(KEYS[2], join.batch_fields), a))
