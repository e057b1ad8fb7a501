--[[ run.put_tools: announce a fan-out: calls of tools that are made together and joined together.
WHY      a holder that dies behind it loses no effect, and its successor finds the ones that it asked for instead of
         asking anew: the names are the step's, whichever generation puts them.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  leases     evb:{live.0}:b:<batch>:leases             HASH
         4  tools      evb:{live.0}:b:<batch>:tools              STREAM
         5  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack   2… items
RETURNS  commit <states> | duplicate <states>
         | reject schema no_batch server_changed run_mismatch stale_lease stale_gen lease_mismatch sealed turning args_mismatch
         intent_conflict forged_prefix seq_gap case_closed expected_mismatch over_budget
         | in_doubt dangling
]]
--#include "include/effects.lua"
local a, malformed = begin('run.put_tools', KEYS[5], KEYS[2], {
  server = 'str?', run = 'str', lease_id = 'str', gen = 'int1', conversation = 'int', step = 'str', parent = 'str',
  seq = 'int1', digest = 'str', window = 'str', window_cost = 'int', intents = 'int1',
})
if not a then return malformed end
if #ARGV ~= 1 + 3 * a.intents or a.intents > 100 then return refused(reject('schema')) end
local prefix = table.concat({a.run, '~', number_text(a.conversation), '.'})
if not is_line(a.step) or a.step:sub(1, #prefix) ~= prefix then return refused(reject('schema')) end
local ids, jobs, fields, named = {}, {}, {}, {}
for i = 1, a.intents do
  local id, tool, args = ARGV[3 * i - 1], ARGV[3 * i], ARGV[3 * i + 1]
  -- The id becomes part of a key of fence 1, whose parts are told by colons.
  local mine = id:sub(1, #a.step + 1) == a.step .. '.' and not id:find(':', 1, true) and not undone_by(id)
  if not mine or named[id] or not is_text(tool) or not outbox.is_object(args) then return refused(reject('schema')) end
  named[id], ids[i] = true, id
  jobs[i] = {intent_id = id, gen = a.gen, tool = tool, args = args}
  for _, field in ipairs({'o.i:', 'o.t:', 'o.a:', 'o.e:'}) do fields[#fields + 1] = field .. id end
end
local run = open_run(
  KEYS[1], 'f.n', 'f.c:' .. a.step, 't.i:' .. number_text(a.seq), 't.opens', 'windows', unpack(fields)
)
local batch = open_batch(KEYS[2], 'budget', 'window_tokens', 'effects_open')
if elsewhere(batch, a) then return refused(reject('server_changed')) end
local refusal = not_holder(run, batch, KEYS[3], a)
if refusal then return refused(refusal) end
if run.data.turning then return refused(reject('turning')) end
local function states()
  local found = {}
  for i, id in ipairs(ids) do found[i] = state_of(run, id) end
  return {states = found}
end
local function put_job(job)
  return step('outbox.put', outbox.put(run, job), {intent_id = job.intent_id, tool = job.tool, args = {job.args}})
end

local known = join.window(run, a.step)
if known then
  -- It was announced before, maybe by an older generation: what was stored counts, and its intention stands.
  if known ~= a.window then return refused(reject('args_mismatch')) end
  for _, job in ipairs(jobs) do
    if not put_job(job) then return refused() end
  end
  return again(duplicate(states()))
end
local chained, floor = on_chain(run, a), floor_of(batch)
if not step('transcript.intend', transcript.intend(run, KEYS[3], chained, floor), chain_args(a, chained)) then
  return refused()
end
local window = {case = a.step, window = a.window, window_cost = a.window_cost, expected = cjson.encode(ids)}
if not step('join.admit', join.admit(run, batch, window), {case = a.step, expected = ids}) then return refused() end
for _, job in ipairs(jobs) do
  local open, stuck = effects.census(run, job.intent_id)
  if not put_job(job) then return refused() end
  effects.follow(run, batch, job.intent_id, open, stuck)
end
note_window(run, a.step)

-- writes
effects.write(run, a.run, KEYS[4])
return done(commit(states()))
