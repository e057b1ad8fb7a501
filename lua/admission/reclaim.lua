--[[ admission.reclaim: give back the place of a lease that nobody released.
WHY      a place that is never given back closes the desk for ever.
KEYS     1 desk        evb:{live.0}:b:<batch>:desk:<name>         HASH
         2 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         3 batch       evb:{live.0}:b:<batch>:batch               HASH
         4 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | reject schema unknown_lease double_release still_live | in_doubt cancel_pending
]]
--#include "admission/fence.lua"
--#include "include/clock.lua"
local a, malformed = begin('admission.reclaim', KEYS[4], KEYS[3], {lease = 'str', cancelled = 'bool', step = 'str'})
if not a then return malformed end
local desk = open_row(KEYS[1], {'bound', 'in_flight', 'generation', 'reclaim_ms', 'l:' .. a.lease})
local run = open_row(KEYS[2])
local now = now_ms(open_row(KEYS[3], {'clock'}))
return answer(admission.reclaim(desk, run, a, now))
