--[[ run.seal: end a run's work and ask for its score.
WHY      the answer, the seal, the score request and the acknowledgement are one step: there is no moment between
         "done" and "acked" in which a death could repeat or lose the run.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  leases     evb:{live.0}:b:<batch>:leases             HASH
         4  planes     evb:{live.0}:b:<batch>:plane              HASH
         5  transcript evb:{live.0}:b:<batch>:transcript:<run>~<conversation> LIST
         6  dead       evb:{live.0}:b:<batch>:dead               STREAM
         7  runs       evb:{live.0}:b:<batch>:runs               STREAM
         8  scores     evb:{live.0}:b:<batch>:scores             STREAM
         9  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack   2 payload    bytes
RETURNS  commit <head> | duplicate <head>
         | reject schema no_batch server_changed run_mismatch stale_gen lease_mismatch turning sealed forged_prefix seq_gap intent_mismatch not_admitted plane_key plane_header duplicate_key
         | in_doubt in_flight unresolved_intent
]]
--#include "include/run.lua"
local KINDS = {
  server = 'str?', plane = 'str', run = 'str', lease_id = 'str', gen = 'int1', conversation = 'int', parent = 'str',
  seq = 'int1', head = 'str', tree_hash = 'str?', artifact = 'str?',
}

local function open(key, a)
  return open_run(key, 'entry', 'place', 'calls', 'windows', 't.opens', 'p.row:' .. result_key(a))
end

local function ahead(packed, runs)
  local admissions = {}
  for i = 1, #packed do
    local place = open(runs[i], envelope_ahead(packed[i])).data.place
    if place then admissions[#admissions + 1] = 'a:' .. place end
  end
  fields_ahead(KEYS[4], admissions)
end
--#each
local a, malformed = begin('run.seal', KEYS[9], KEYS[2], KINDS)
if not a then return malformed end
local run = opened[KEYS[1]] or open(KEYS[1], a)
local batch = open_batch(KEYS[2], 'heartbeat_ms', 'n:running', 'n:sealed')
if elsewhere(batch, a) then return refused(reject('server_changed')) end
a.payload = ARGV[2]
if not is_text(a.payload) then return refused(reject('schema')) end
if is_sealed_by(run, a.lease_id) then return again(duplicate({head = head_of(run)})) end
if has_turned(run, a) then return refused(reject('run_mismatch')) end
local floor = floor_of(batch)
if is_turning(run, a, floor) then return refused(reject('turning')) end
local events, chained = {}, on_chain(run, a)
local d = transcript.append(run, KEYS[3], KEYS[5], chained, events, floor)
if not step('transcript.append', d, chain_args(a, chained)) then
  transcript.bury(KEYS[6], d, a)
  return refused()
end
-- What was begun and not ended would go on, and be spent, beside a score that does not know of it.
if #open_windows(run) > 0 then return refused(in_doubt('in_flight')) end
for _, one in ipairs(open_calls(run)) do
  if one.desk == 'model' and call_is_live(run, one) then return refused(in_doubt('unresolved_intent')) end
end
local sealed = transcript.seal(run, KEYS[3], chained, floor)
if not step('transcript.seal', sealed, chain_args(a, chained)) then return refused() end
if a.tree_hash then
  local tree = {step = a.run, gen = a.gen, tree_hash = a.tree_hash}
  if not step('workspace.record', workspace.record(run, tree), {step = a.run}) then return refused() end
end
local planes = opened[KEYS[4]] or open_row(KEYS[4], {'a:' .. run.data.place})
local result = {admission = run.data.place, key = result_key(a), plane = a.plane, body = a.head}
local written = plane.write(planes, run, result, '')
if not step('plane.write', written, {admission = result.admission, key = result.key, body = a.head}) then
  return refused()
end
leave_workspace(run, batch, a.run)

-- writes
transcript.write_events(KEYS[5], events)
acknowledge(KEYS[7], 'worker', run.data.entry)
put(run, 'entry', emit(KEYS[8], a.run))
put(run, 'tree', a.tree_hash or '')
if a.artifact then put(run, 'artifact', a.artifact) end
move(run, batch, 'sealed')
return done(commit({head = a.head}))
