--[[ sandbox.plan: name a step before anybody writes for it.
WHY      whether a write may be tried again after a loss is settled before it can be lost.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate | reject schema step_conflict
]]
--#include "sandbox/fence.lua"
local a, malformed = begin('sandbox.plan', KEYS[3], KEYS[2], {step = 'str', escapes = 'bool'})
if not a then return malformed end
return answer(sandbox.plan(open_row(KEYS[1], {'b.step:' .. a.step}), a))
