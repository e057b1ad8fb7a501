-- outbox: the checks and changes of fence 2, for its own operations and for the pipeline's steps.
--
-- Run row:   o.i:<id>  an intent: '<state> <gen> <sent since, ms> <executor>'        o.t:<id>  its tool
--            o.a:<id>  its arguments, JSON text; an undo takes those of the intent that it undoes
--            o.r:<id>  its observation    o.x:<bytes in id>:<id>:<executor>  '1' once that executor has claimed it
-- Batch row: ack_bound_ms, inverses  tool → inverse tool, JSON text
--#include "include/call.lua"
local outbox = {}
local UNDO = '~undo'

outbox.batch_fields = {'clock', 'ack_bound_ms', 'inverses'}

-- The intent that an undo undoes; nil for any other.
local function undone_by(id)
  if id:sub(-#UNDO) == UNDO then return id:sub(1, -#UNDO - 1) end
end

-- The fields of one intent. All others of the run's row are left where they are: a run may have many intents.
function outbox.fields(id) return {'o.i:' .. id, 'o.t:' .. id, 'o.a:' .. (undone_by(id) or id), 'o.r:' .. id} end

local function claimed_by(id, executor) return 'o.x:' .. number_text(#id) .. ':' .. id .. ':' .. executor end

-- What is most often asked of an intent: its state, nil when there is none.
local function state_of(run, id) return (run.data['o.i:' .. id] or ''):match('^[%a_]+') end

local function intent(run, id)
  local state, gen, since, executor = (run.data['o.i:' .. id] or ''):match('^([%a_]+) (%d+) (%d+) (.*)$')
  if state then return {id = id, state = state, gen = tonumber(gen), since = tonumber(since), executor = executor} end
end

-- `write` is `put`, or `keep` for what a refusal changes too.
local function store(write, run, at)
  local text = at.state .. ' ' .. number_text(at.gen) .. ' ' .. number_text(at.since) .. ' ' .. at.executor
  write(run, 'o.i:' .. at.id, text)
end

-- What becomes of an undo becomes of the intent that it undoes.
local function settle_undone(write, run, undo, state)
  local at = intent(run, undone_by(undo.id) or '')
  if not at then return end
  at.state = state
  store(write, run, at)
end

local function job(run, id)
  return {tool = run.data['o.t:' .. id], args = run.data['o.a:' .. (undone_by(id) or id)]}
end

local function stored(run, at)
  local answer = job(run, at.id)
  answer.gen, answer.state, answer.observation = at.gen, at.state, run.data['o.r:' .. at.id] or nil
  return answer
end

-- JSON text is opaque here. But what no executor could read must not become a job.
function outbox.is_object(text)
  return text:sub(1, 1) == '{' and pcall(cjson.decode, text)
end

function outbox.put(run, a)
  if undone_by(a.intent_id) then return reject('schema') end
  local at = intent(run, a.intent_id)
  if at then
    local known = job(run, a.intent_id)
    if known.tool ~= a.tool or known.args ~= a.args then return reject('args_mismatch', known) end
    return duplicate(stored(run, at))
  end
  at = {id = a.intent_id, state = 'queued', gen = a.gen, since = 0, executor = ''}
  store(put, run, at)
  put(run, 'o.t:' .. at.id, a.tool)
  put(run, 'o.a:' .. at.id, a.args)
  return commit({gen = at.gen, state = at.state, tool = a.tool, args = a.args}) -- `stored`, before there is anything else
end

function outbox.claim(run, a)
  local at = intent(run, a.intent_id)
  if not at then return reject('unknown_intent') end
  if at.gen ~= a.gen then return reject('stale_gen') end
  if at.state == 'executing' and at.executor == a.executor then return duplicate(job(run, at.id)) end
  if at.state ~= 'queued' then return reject('not_queued') end
  -- A claim that comes late, after its executor lost the intent again, must not take it back.
  if run.data[claimed_by(at.id, a.executor)] then return reject('executor_reused') end
  at.state, at.executor = 'executing', a.executor
  store(put, run, at)
  put(run, claimed_by(at.id, a.executor), '1')
  return commit(job(run, at.id))
end

function outbox.sent(run, a, now)
  local at = intent(run, a.intent_id)
  if not at then return reject('unknown_intent') end
  if at.gen ~= a.gen then return reject('stale_gen') end
  local mine = at.executor == a.executor
  if at.state == 'awaiting_ack' and mine then return duplicate() end
  if at.state ~= 'executing' or not mine then return reject('not_claimed') end
  at.state, at.since = 'awaiting_ack', now
  store(put, run, at)
  return commit()
end

-- An outcome without these three belongs to nobody.
function outbox.keyed(a) return is_text(a.intent_id) and fits('int', a.gen) and is_text(a.executor) end

function outbox.complete(run, a)
  local at = intent(run, a.intent_id)
  if not at then return reject('unknown_intent') end
  if at.gen ~= a.gen then return reject('stale_gen') end
  local outcome = a.ok and 'committed' or 'failed'
  if at.state == 'committed' or at.state == 'failed' then
    if at.state == outcome and run.data['o.r:' .. at.id] == a.observation then return duplicate({state = outcome}) end
    return reject('already_final')
  end
  if at.state == 'compensating' or at.state == 'compensated' or at.state == 'stuck' then
    return reject('already_final')
  end
  if at.executor ~= a.executor then return reject('not_claimed') end -- who is queued has no executor
  -- A success whose key nobody echoed may be that of another call: the tool has promised nothing.
  if a.ok and a.echo ~= at.id then return in_doubt('missing_echo') end
  at.state = outcome
  store(put, run, at)
  put(run, 'o.r:' .. at.id, a.observation)
  if undone_by(at.id) then settle_undone(put, run, at, a.ok and 'compensated' or 'stuck') end
  return commit({state = outcome})
end

function outbox.advance(run, a)
  local at = intent(run, a.intent_id)
  if not at then return reject('unknown_intent') end
  if at.gen ~= a.gen then return reject('stale_gen') end
  at.gen = at.gen + 1
  store(put, run, at)
  return commit({gen = at.gen, state = at.state})
end

-- The undo is queued in the same step as the doubt, or the wish to be rid of the effect, is recorded.
local function begin_undo(write, run, at, inverse)
  local undo = {id = at.id .. UNDO, state = 'queued', gen = 0, since = 0, executor = ''}
  at.state = 'compensating'
  store(write, run, at)
  store(write, run, undo)
  write(run, 'o.t:' .. undo.id, inverse)
end

-- A compensation is what a refusal keeps: the caller's command was not applied, yet the undo is queued.
local function compensating(run, at, inverse)
  if at.state ~= 'compensating' then begin_undo(keep, run, at, inverse) end
  return {verb = 'compensate', answer = {state = at.state, undo_id = at.id .. UNDO}}
end

-- The tool that undoes an intent; none undoes an undo.
local function inverse_of(run, batch, at)
  if undone_by(at.id) then return nil end
  local inverse = cjson.decode(batch.data.inverses or '{}')[run.data['o.t:' .. at.id]]
  return is_text(inverse) and inverse or nil
end

function outbox.recover(run, batch, a, now)
  local at = intent(run, a.intent_id)
  if not at then return reject('unknown_intent') end
  if at.state == 'executing' then -- the call never left
    at.state, at.executor = 'queued', ''
    store(put, run, at)
    return commit({state = at.state})
  end
  if at.state == 'compensating' then return compensating(run, at) end
  if at.state ~= 'awaiting_ack' then
    return duplicate({state = at.state, observation = run.data['o.r:' .. at.id] or nil})
  end
  -- A batch that declares no bound gives nobody the right to call silence over.
  local bound = tonumber(batch.data.ack_bound_ms or '') or math.huge
  if now - at.since < bound then return in_doubt('awaiting_ack', {state = at.state}) end
  local inverse = inverse_of(run, batch, at)
  if inverse then return compensating(run, at, inverse) end
  at.state = 'stuck'
  store(keep, run, at)
  if undone_by(at.id) then settle_undone(keep, run, at, 'stuck') end
  return reject('stuck', {state = at.state})
end

-- An effect that stands is to be undone: the conversation that asked for it is given up.
function outbox.revoke(run, batch, a)
  local at = intent(run, a.intent_id)
  if not at then return reject('unknown_intent') end
  if at.gen ~= a.gen then return reject('stale_gen') end
  local answer = {undo_id = at.id .. UNDO}
  if at.state == 'compensating' or at.state == 'compensated' then return duplicate(answer) end
  if at.state ~= 'committed' then return reject('not_committed') end
  local inverse = inverse_of(run, batch, at)
  if not inverse then return reject('stuck') end
  begin_undo(put, run, at, inverse)
  return commit(answer)
end
