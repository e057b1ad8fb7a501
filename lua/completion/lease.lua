--[[ completion.lease: hand a run to one holder.
WHY      a preempted worker's completion must not bind beside its successor's; and each new holder costs a retry.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 leases      evb:{live.0}:b:<batch>:leases              HASH
         4 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <gen> | duplicate <the same> | reject schema retries_exhausted lease_reused
]]
--#include "completion/fence.lua"
local a, malformed = begin('completion.lease', KEYS[4], KEYS[2], {run = 'str', lease_id = 'str'})
if not a then return malformed end
local run = open_row(KEYS[1], {'c.gen', 'c.lease', 'c.compute', 'c.out'})
local batch = open_row(KEYS[2], {'compute_retries', 'model_retries'})
local leases = open_row(KEYS[3], {a.lease_id})
return answer(completion.lease(run, batch, leases, a))
