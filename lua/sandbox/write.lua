--[[ sandbox.write: accept a write to a workspace.
WHY      the receipt says what was accepted, not that a disk still has it.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <receipt log_index> | duplicate <the same>
         | reject schema unknown_step stale_epoch step_conflict receipt_reused | compensate <undo_id>
]]
--#include "sandbox/fence.lua"
--#include "include/clock.lua"
local a, malformed = begin('sandbox.write', KEYS[3], KEYS[2], {workspace = 'str', step = 'str', epoch = 'int', path = 'str', digest = 'str', receipt = 'str'})
if not a then return malformed end
local batch = open_row(KEYS[2], sandbox.fields)
local run = open_row(KEYS[1], {'b.step:' .. a.step, 'b.ws:' .. a.workspace, 'b.log:' .. a.receipt})
return answer(sandbox.write(run, batch, a, now_ms(batch)))
