--[[ completion.fence: take the run away from one generation.
WHY      a late duplicate of this command must not take it from the next.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | reject schema stale_lease
]]
--#include "completion/fence.lua"
local a, malformed = begin('completion.fence', KEYS[3], KEYS[2], {run = 'str', gen = 'int'})
if not a then return malformed end
return answer(completion.fence(open_row(KEYS[1], {'c.gen', 'c.lease'}), a))
