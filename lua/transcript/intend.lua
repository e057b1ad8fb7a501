--[[ transcript.intend: announce an event that has an effect outside.
WHY      a death between effect and event must leave a name behind, not a gap.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 leases      evb:{live.0}:b:<batch>:leases              HASH
         4 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate
         | reject schema run_mismatch stale_gen lease_mismatch sealed intent_conflict forged_prefix seq_gap
         | in_doubt dangling
]]
--#include "transcript/fence.lua"
local a, malformed = begin('transcript.intend', KEYS[4], KEYS[2], {run = 'str', lease_id = 'str', gen = 'int', parent = 'str', seq = 'int1', digest = 'str'})
if not a then return malformed end
return answer(transcript.intend(open_row(KEYS[1]), KEYS[3], a))
