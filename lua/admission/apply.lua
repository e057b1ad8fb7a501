--[[ admission.apply: accept the body of a lease.
WHY      the body of a lease that was given up must not commit beside the retry.
KEYS     1 desk        evb:{live.0}:b:<batch>:desk:<name>         HASH
         2 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         3 batch       evb:{live.0}:b:<batch>:batch               HASH
         4 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate | reject schema stale_gen step_committed
]]
--#include "admission/fence.lua"
local a, malformed = begin('admission.apply', KEYS[4], KEYS[3], {lease = 'str', gen = 'int', digest = 'str', step = 'str'})
if not a then return malformed end
local desk = open_row(KEYS[1], {'bound', 'in_flight', 'generation', 'reclaim_ms', 'l:' .. a.lease})
local run = open_row(KEYS[2])
return answer(admission.apply(desk, run, a))
