--[[ transcript.append: add one event to a run's chain.
WHY      a preempted worker's late event must not enter its successor's transcript.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 leases      evb:{live.0}:b:<batch>:leases              HASH
         4 transcript  evb:{live.0}:b:<batch>:transcript:<run>    LIST
         5 dead        evb:{live.0}:b:<batch>:dead                STREAM
         6 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack   2 payload    bytes
RETURNS  commit <head> | duplicate <head>
         | reject schema run_mismatch stale_gen lease_mismatch sealed forged_prefix seq_gap intent_mismatch
]]
--#include "transcript/fence.lua"
local a, malformed = begin('transcript.append', KEYS[6], KEYS[2], {run = 'str', lease_id = 'str', gen = 'int', parent = 'str', seq = 'int1', head = 'str', intent = 'str?'})
if not a then return malformed end
a.payload = ARGV[2]
if not is_text(a.payload) then return refused(reject('schema')) end
local events = {}
local d = transcript.append(open_row(KEYS[1]), KEYS[3], KEYS[4], a, events)
transcript.bury(KEYS[5], d, a)
transcript.write_events(KEYS[4], events)
return answer(d)
