--[[ plane.admit: let one key be written, on one plane.
WHY      what a writer may touch is settled before it runs, and a full shadow plane never spills into the live one.
KEYS     1 planes      evb:{live.0}:b:<batch>:plane               HASH
         2 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         3 batch       evb:{live.0}:b:<batch>:batch               HASH
         4 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <admission> | duplicate <the same>
         | reject schema admission_reused plane_key duplicate_key capacity
]]
--#include "plane/fence.lua"
local a, malformed = begin('plane.admit', KEYS[4], KEYS[3], {key = 'str', plane = 'str', admission = 'str'})
if not a then return malformed end
local planes = open_row(KEYS[1], plane.fields)
return answer(plane.admit(planes, open_row(KEYS[2]), open_row(KEYS[3], {'capacity'}), a))
