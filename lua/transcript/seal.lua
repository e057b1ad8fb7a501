--[[ transcript.seal: end a transcript.
WHY      only a chain that nobody can extend may be scored.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 leases      evb:{live.0}:b:<batch>:leases              HASH
         4 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate | reject schema run_mismatch stale_gen lease_mismatch sealed forged_prefix
         | in_doubt unresolved_intent
]]
--#include "transcript/fence.lua"
local a, malformed = begin('transcript.seal', KEYS[4], KEYS[2], {run = 'str', lease_id = 'str', gen = 'int', head = 'str'})
if not a then return malformed end
return answer(transcript.seal(open_row(KEYS[1]), KEYS[3], a))
