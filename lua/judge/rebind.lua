--[[ judge.rebind: bind a run without a score to another judge.
WHY      a change of judge is somebody's decision, and takes the old token away.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <epoch> | reject schema unbound already_scored stale_epoch
]]
--#include "judge/fence.lua"
local a, malformed = begin('judge.rebind', KEYS[3], KEYS[2], {run = 'str', epoch = 'int1', candidate = 'str', judge = 'str'})
if not a then return malformed end
return answer(judge.rebind(open_row(KEYS[1]), a))
