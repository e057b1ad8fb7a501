--[[ sandbox.preempt: end a life of a workspace.
WHY      a late duplicate of this command must not end the next life.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | reject schema stale_epoch
]]
--#include "sandbox/fence.lua"
--#include "include/clock.lua"
local a, malformed = begin('sandbox.preempt', KEYS[3], KEYS[2], {workspace = 'str', epoch = 'int'})
if not a then return malformed end
local batch = open_row(KEYS[2], sandbox.fields)
return answer(sandbox.preempt(open_row(KEYS[1], {'b.ws:' .. a.workspace}), batch, a, now_ms(batch)))
