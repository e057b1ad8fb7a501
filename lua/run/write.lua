--[[ run.write: say what was put on the holder's disk.
WHY      a write counts where its bytes are: the receipt names the life of the workspace that took it, and is joined
         only while that one lives.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  leases     evb:{live.0}:b:<batch>:leases             HASH
         4  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <receipt log_index> | duplicate <the same>
         | reject schema no_batch server_changed run_mismatch stale_lease stale_gen lease_mismatch sealed
         stale_epoch step_conflict receipt_reused
]]
--#include "include/run.lua"
local a, malformed = begin('run.write', KEYS[4], KEYS[2], {
  server = 'str?', run = 'str', lease_id = 'str', gen = 'int1', conversation = 'int', epoch = 'int', step = 'str',
  path = 'str', digest = 'str', receipt = 'str',
})
if not a then return malformed end
local prefix = table.concat({a.run, '~', number_text(a.conversation), '.'})
if a.step:sub(1, #prefix) ~= prefix then return refused(reject('schema')) end
local run, batch = open_run(KEYS[1], 'b.step:' .. a.step, 'b.ws:' .. a.run), open_batch(KEYS[2], 'clock', 'heartbeat_ms')
if elsewhere(batch, a) then return refused(reject('server_changed')) end
local refusal = not_holder(run, batch, KEYS[3], a)
if refusal then return refused(refusal) end
local plan = {step = a.step, escapes = false} -- what leaves the workspace is a tool's effect
if not step('sandbox.plan', sandbox.plan(run, plan), plan) then return refused() end
a.workspace = a.run
local d = sandbox.write(run, batch, a, now_ms(batch))
if d.verb == 'duplicate' then return again(d) end
if not step('sandbox.write', d, {workspace = a.run}) then return refused() end
return done(d)
