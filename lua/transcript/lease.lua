--[[ transcript.lease: hand a run to one holder.
WHY      a worker that was taken for dead must not go on writing beside its successor.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 leases      evb:{live.0}:b:<batch>:leases              HASH
         4 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <gen head length unresolved> | duplicate <the same> | reject schema sealed lease_reused
]]
--#include "transcript/fence.lua"
local a, malformed = begin('transcript.lease', KEYS[4], KEYS[2], {run = 'str', lease_id = 'str'})
if not a then return malformed end
local run = open_row(KEYS[1])
local leases = open_row(KEYS[3], {a.lease_id})
return answer(transcript.lease(run, leases, a))
