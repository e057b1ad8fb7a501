--[[ run.join: join a fan-out whose effects have all ended.
WHY      observations enter the transcript here and nowhere else: all of them, once, and by the live holder.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  leases     evb:{live.0}:b:<batch>:leases             HASH
         4  transcript evb:{live.0}:b:<batch>:transcript:<run>~<conversation> LIST
         5  dead       evb:{live.0}:b:<batch>:dead               STREAM
         6  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack   2 payload    bytes   3… items
RETURNS  commit <head length> | duplicate <the same> | compensate <undo_id state>
         | reject schema no_batch server_changed run_mismatch stale_lease stale_gen lease_mismatch sealed turning unknown_intent stuck
         unknown_step unknown_receipt stale_epoch unknown_case late window_mismatch duplicate_attempt unknown_attempt
         window_exhausted not_joined already_committed forged_prefix seq_gap intent_mismatch
         | in_doubt in_flight
]]
--#include "include/effects.lua"
--#include "include/receipts.lua"
local a, malformed = begin('run.join', KEYS[6], KEYS[2], {
  server = 'str?', run = 'str', lease_id = 'str', gen = 'int1', conversation = 'int', epoch = 'int', step = 'str',
  parent = 'str', seq = 'int1', head = 'str', digest = 'str', window = 'str', intents = 'int1', receipts = 'int',
})
if not a then return malformed end
if #ARGV ~= 1 + 1 + a.intents + 2 * a.receipts or a.intents > 100 or a.receipts > 100 then
  return refused(reject('schema'))
end
a.payload, a.intent = ARGV[2], a.digest
if not is_text(a.payload) then return refused(reject('schema')) end
local fields = {}
for i = 1, a.intents do
  if not is_text(ARGV[2 + i]) then return refused(reject('schema')) end
  fields[i] = 'o.i:' .. ARGV[2 + i]
end
local run = open_run(
  KEYS[1], 't.i:' .. number_text(a.seq), 't.opens', 'f.c:' .. a.step, 'windows', unpack(fields)
)
local batch = open_batch(KEYS[2], 'clock', 'budget', 'window_tokens', 'heartbeat_ms')
if elsewhere(batch, a) then return refused(reject('server_changed')) end
local refusal = not_holder(run, batch, KEYS[3], a)
if refusal then return refused(refusal) end
if run.data.turning then return refused(reject('turning')) end
local floor, chained, events = floor_of(batch), on_chain(run, a), {}
if join.is_committed(run, a.step) then
  local d = transcript.append(run, KEYS[3], KEYS[4], chained, events, floor)
  if d.verb == 'duplicate' then return again(duplicate({head = a.head, length = a.seq})) end
  local verdict = {case = a.step, verdict = a.head}
  local committed = join.commit(run, batch, verdict)
  -- With these very words, in a conversation that was given up: to fence 12 a repetition, and nothing of this one's.
  if committed.verb == 'duplicate' then return refused(reject('already_committed')) end
  return refused(committed, 'join.commit', verdict)
end

local ended = {}
for i = 1, a.intents do
  ended[i] = intent(run, ARGV[2 + i])
  if not ended[i] then return refused(reject('unknown_intent')) end
end
for _, at in ipairs(ended) do
  if OPEN_STATES[at.state] then return refused(in_doubt('in_flight')) end
end
for _, at in ipairs(ended) do
  if at.state == 'stuck' then return refused(reject('stuck')) end
end
if not join_receipts(run, batch, a, 3 + a.intents) then return refused() end

read_more(run, join.attempt_fields(run, a.step, {unpack(ARGV, 3, 2 + a.intents)}))

-- What a tool spent is what it says itself; a window that holds no tokens has none to spend.
local function tokens_of(at)
  if not join.window(run, a.step) or join.cost(run, a.step) == 0 then return 0 end
  local readable, said = pcall(cjson.decode, run.data['o.r:' .. at.id] or '')
  local tokens = readable and type(said) == 'table' and said.tokens
  return fits('int', tokens) and tokens or 0
end
for _, at in ipairs(ended) do
  local result = {case = a.step, attempt = at.id, tokens = tokens_of(at), ok = at.state == 'committed'}
  local d = join.result(run, setmetatable({window = a.window}, {__index = result}))
  if not step('join.result', d, result) then
    if d.reason ~= 'window_exhausted' then return refused() end
    -- The window is aborted by the sum of what came before, too: all of it stands, and is told, with the refusal.
    write_rows()
    count_refusal(d)
    record(call.parts, true)
    return reply(d, 'join.result')
  end
end
local verdict = {case = a.step, verdict = a.head}
if not step('join.commit', join.commit(run, batch, verdict), verdict) then return refused() end
local d = transcript.append(run, KEYS[3], KEYS[4], chained, events, floor)
if not step('transcript.append', d, chain_args(a, chained, {intent = a.digest})) then
  transcript.bury(KEYS[5], d, a)
  return refused()
end
forget_window(run, a.step)

-- writes
transcript.write_events(KEYS[4], events)
return done(commit({head = a.head, length = a.seq}))
