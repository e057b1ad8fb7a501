--[[ sandbox.join: count a step as done.
WHY      a write that was acknowledged by a replica which vanished is on no disk.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <state> | duplicate <state> | reject schema unknown_step unknown_receipt stale_epoch
         | compensate <undo_id state>
]]
--#include "sandbox/fence.lua"
--#include "include/clock.lua"
local a, malformed = begin('sandbox.join', KEYS[3], KEYS[2], {workspace = 'str', step = 'str', receipt = 'str', epoch = 'int'})
if not a then return malformed end
local batch = open_row(KEYS[2], sandbox.fields)
local run = open_row(KEYS[1], {'b.step:' .. a.step, 'b.ws:' .. a.workspace, 'b.log:' .. a.receipt})
return answer(sandbox.join(run, batch, a, now_ms(batch)))
