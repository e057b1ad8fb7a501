--[[ admission.acquire: take a place at a desk.
WHY      a retry that bypasses the bound doubles the load when the endpoint is slowest.
KEYS     1 desk        evb:{live.0}:b:<batch>:desk:<name>         HASH
         2 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         3 batch       evb:{live.0}:b:<batch>:batch               HASH
         4 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <lease gen> | duplicate <the same> | reject schema lease_reused step_committed step_in_flight bound_full
]]
--#include "admission/fence.lua"
local a, malformed = begin('admission.acquire', KEYS[4], KEYS[3], {step = 'str', lease = 'str'})
if not a then return malformed end
local desk = open_row(KEYS[1], {'bound', 'in_flight', 'generation', 'reclaim_ms', 'l:' .. a.lease})
local run = open_row(KEYS[2])
return answer(admission.acquire(desk, run, a))
