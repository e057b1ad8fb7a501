--[[ workspace.record: name the tree that a step's verdict will be about.
WHY      a verdict that comes for the tree before it must find another generation.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate | reject schema stale_gen
]]
--#include "workspace/fence.lua"
local a, malformed = begin('workspace.record', KEYS[3], KEYS[2], {step = 'str', gen = 'int1', tree_hash = 'str'})
if not a then return malformed end
local d, cleared = workspace.record(open_row(KEYS[1], workspace.fields(a.step)), a)
step('workspace.record', d, {cleared = cleared})
return answer(d)
