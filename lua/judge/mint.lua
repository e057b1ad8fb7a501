--[[ judge.mint: bind a run to its candidate and judge.
WHY      who signs is settled before the score exists.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <candidate judge epoch> | reject schema already_bound
]]
--#include "judge/fence.lua"
local a, malformed = begin('judge.mint', KEYS[3], KEYS[2], {run = 'str', candidate = 'str', judge = 'str', epoch = 'int1'})
if not a then return malformed end
return answer(judge.mint(open_row(KEYS[1]), a))
