--[[ workspace.supersede: put another tree in the place of one generation's.
WHY      a late duplicate of this command must not take off the verdict on the tree after it.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <gen> | reject schema stale_gen
]]
--#include "workspace/fence.lua"
local a, malformed = begin('workspace.supersede', KEYS[3], KEYS[2], {step = 'str', gen = 'int', tree_hash = 'str'})
if not a then return malformed end
local d, cleared = workspace.supersede(open_row(KEYS[1], workspace.fields(a.step)), a)
step('workspace.supersede', d, {cleared = cleared})
return answer(d)
