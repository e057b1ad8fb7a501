--[[ run.seal: end a run's work and ask for its score.
WHY      the answer, the seal, the score request and the acknowledgement are one step: there is no moment between
         "done" and "acked" in which a death could repeat or lose the run.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  leases     evb:{live.0}:b:<batch>:leases             HASH
         4  transcript evb:{live.0}:b:<batch>:transcript:<run>   STREAM
         5  dead       evb:{live.0}:b:<batch>:dead               STREAM
         6  runs       evb:{live.0}:b:<batch>:runs               STREAM
         7  scores     evb:{live.0}:b:<batch>:scores             STREAM
         8  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack   2 payload    bytes
RETURNS  commit <head> | duplicate <head>
         | reject schema server_changed run_mismatch stale_gen lease_mismatch sealed forged_prefix seq_gap intent_mismatch
         | in_doubt unresolved_intent
]]
--#include "include/run.lua"
local a, malformed = begin('run.seal', KEYS[8], KEYS[2], {
  server = 'str?', run = 'str', lease_id = 'str', gen = 'int1', parent = 'str', seq = 'int1', head = 'str',
  tree_hash = 'str?', artifact = 'str?',
})
if not a then return malformed end
local run, batch = open_row(KEYS[1]), open_batch(KEYS[2], 'n:running', 'n:sealed')
if elsewhere(batch, a) then return refused(reject('server_changed')) end
a.payload = ARGV[2]
if not is_text(a.payload) then return refused(reject('schema')) end
if ended_by(run, 'seal', a.lease_id) then return again(duplicate({head = head_of(run)})) end
local events = {}
local d = transcript.append(run, KEYS[3], KEYS[4], a, events, floor_of(batch))
if not step('transcript.append', d) then
  transcript.bury(KEYS[5], d, a)
  return refused()
end
if not step('transcript.seal', transcript.seal(run, KEYS[3], a, floor_of(batch))) then return refused() end

-- writes
transcript.write_events(KEYS[4], events)
acknowledge(KEYS[6], 'worker', run.data.entry)
put(run, 'entry', emit(KEYS[7], a.run))
end_lease(run, 'seal', a.lease_id)
put(run, 'tree', a.tree_hash or '')
put(run, 'artifact', a.artifact or '')
move(run, batch, 'sealed')
return done(commit({head = a.head}))
