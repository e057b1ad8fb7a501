-- ledger: the checks and changes of fence 10.
--
-- Run row:   l.a:<attempt>  '<state> <estimate> <billed> <durable> <watermark> <arrived> <last seq> <settled 0|1>';
--                           an attempt is named <step>#<number>
--            l.done:<step>  the attempt that committed it
--            l.c:<attempt>:<seq>  '<tokens> paid|durable|refused': a chunk that the watermark has not passed, or in a leap
--            l.s:<attempt>:<seq>, l.d:<attempt>:<seq>  stretches of chunks that came, and of durable ones: see `extend`
-- Batch row: budget; spent, durable, reserved: totals over its attempts
--
-- arrived is to the chunks that came what the watermark is to the durable ones: the last of 1, 2, 3 … without a gap.
--#include "include/call.lua"
local ledger = {}

local FIELDS = {'state', 'estimate', 'billed', 'durable', 'watermark', 'arrived', 'last', 'settled'}
local FORMAT = '^(%a+)' .. string.rep(' (%d+)', #FIELDS - 1) .. '$'

ledger.totals = {'budget', 'spent', 'durable', 'reserved'}

local function name_of(a) return a.step .. '#' .. number_text(a.attempt) end

local function attempt(run, a)
  local values = {(run.data['l.a:' .. name_of(a)] or ''):match(FORMAT)}
  if #values == 0 then return nil end
  local at = {name = name_of(a), state = values[1]}
  for i = 2, #FIELDS do at[FIELDS[i]] = tonumber(values[i]) end
  return at
end

local function unused(a)
  return {
    name = name_of(a), state = 'none', estimate = a.estimate, billed = 0, durable = 0, watermark = 0, arrived = 0,
    last = 0, settled = 0,
  }
end

-- What it may still spend.
local function reserved(at)
  return at.state == 'open' and math.max(at.estimate - at.billed, 0) or 0
end

local function shift(batch, field, by, write)
  if by ~= 0 then write(batch, field, int(batch, field) + by) end
end

-- The one place where an attempt changes, and the batch's totals with it. `write` is `put`, or `keep` for what a
-- refusal changes too.
local function change(run, batch, at, fields, write)
  local billed, durable, held = at.billed, at.durable, reserved(at)
  for field, value in pairs(fields) do at[field] = value end
  shift(batch, 'spent', at.billed - billed, write)
  shift(batch, 'durable', at.durable - durable, write)
  shift(batch, 'reserved', reserved(at) - held, write)
  local values = {at.state}
  for i = 2, #FIELDS do values[i] = number_text(at[FIELDS[i]]) end
  write(run, 'l.a:' .. at.name, table.concat(values, ' '))
end

-- An attempt that is refused when it is new is used up, not left waiting.
local function refuse_new(run, batch, a, reason)
  if not attempt(run, a) then change(run, batch, unused(a), {state = 'abandoned'}, keep) end
  return reject(reason)
end

-- Above 2^53 a sum is no longer exact: what would take the batch's there is no count of tokens.
local function is_countable(batch, more) return int(batch, 'spent') + more <= MAX_INT end

function ledger.admit(run, batch, a)
  if run.data['l.done:' .. a.step] then return refuse_new(run, batch, a, 'already_committed') end
  if attempt(run, a) then return reject('attempt_reused') end
  if int(batch, 'spent') + int(batch, 'reserved') + a.estimate > int(batch, 'budget') then
    return refuse_new(run, batch, a, 'over_budget')
  end
  change(run, batch, unused(a), {state = 'open'}, put)
  return commit()
end

local function forget(run, field, write)
  if run.data[field] then write(run, field, false) end
end

-- Adds a number to a set, and returns the end of the stretch that begins at 1, which was `upto`. Every other stretch
-- has two fields, its first number and its last, each naming the other: so one that closes a gap joins its neighbours
-- in a few steps, however long they are. Fields between the two ends mean nothing, and are dropped to save room.
local function extend(run, set, upto, n, write)
  local function at(number) return set .. number_text(number) end
  local last = tonumber(run.data[at(n + 1)] or n)
  if n == upto + 1 then
    if last > n then
      forget(run, at(n + 1), write)
      forget(run, at(last), write)
    end
    return last
  end
  local first = tonumber(run.data[at(n - 1)] or n)
  forget(run, at(n + 1), write)
  forget(run, at(n - 1), write)
  write(run, at(first), last)
  write(run, at(last), first)
  return upto
end

local function chunk_at(run, at, seq)
  if seq <= at.watermark then return {mark = 'durable'} end
  local tokens, mark = (run.data['l.c:' .. at.name .. ':' .. number_text(seq)] or ''):match('^(%d+) (%a+)$')
  if tokens then return {tokens = tonumber(tokens), mark = mark} end
end

local function note_chunk(run, at, seq, tokens, mark, write)
  local field = 'l.c:' .. at.name .. ':' .. number_text(seq)
  if seq <= at.watermark then forget(run, field, write) else write(run, field, number_text(tokens) .. ' ' .. mark) end
end

local function make_durable(run, batch, at, seq, tokens, write)
  local watermark = extend(run, 'l.d:' .. at.name .. ':', at.watermark, seq, write)
  change(run, batch, at, {durable = at.durable + tokens, watermark = watermark}, write)
  note_chunk(run, at, seq, tokens, 'durable', write)
end

local function figures(at) return {billed = at.billed, durable = at.durable, watermark = at.watermark} end

-- `write` is `keep` in a step that bills the chunks that it carries also when it is refused.
function ledger.chunk(run, batch, a, write)
  local at = attempt(run, a)
  if not at then return reject('unknown_attempt') end
  local known = chunk_at(run, at, a.seq)
  if known then
    if a.durable and known.mark == 'paid' and at.settled == 0 then
      make_durable(run, batch, at, a.seq, known.tokens, write)
    end
    return duplicate(figures(at))
  end
  if at.settled == 0 and not is_countable(batch, a.tokens) then return reject('schema') end
  if at.state ~= 'open' then
    note_chunk(run, at, a.seq, a.tokens, 'refused', keep)
    if at.settled == 0 then change(run, batch, at, {billed = at.billed + a.tokens}, keep) end
    return reject('attempt_closed', figures(at))
  end
  local arrived = extend(run, 'l.s:' .. at.name .. ':', at.arrived, a.seq, write)
  change(run, batch, at, {billed = at.billed + a.tokens, arrived = arrived}, write)
  if a.durable then
    make_durable(run, batch, at, a.seq, a.tokens, write)
  else
    note_chunk(run, at, a.seq, a.tokens, 'paid', write)
  end
  return commit(figures(at))
end

function ledger.done(run, batch, a)
  local at = attempt(run, a)
  if not at then return reject('unknown_attempt') end
  if at.state == 'committed' and at.last == a.last_seq then return duplicate({state = at.state}) end
  if at.state ~= 'open' then return reject('attempt_closed', {state = at.state}) end
  if run.data['l.done:' .. a.step] then
    change(run, batch, at, {state = 'abandoned'}, keep)
    return reject('already_committed', {state = at.state})
  end
  if at.arrived < a.last_seq then return in_doubt('missing_chunks', {state = at.state}) end
  if at.billed ~= at.durable then
    change(run, batch, at, {state = 'cut'}, keep)
    return reject('not_durable', {state = at.state})
  end
  change(run, batch, at, {state = 'committed', last = a.last_seq}, put)
  put(run, 'l.done:' .. a.step, a.attempt)
  return commit({state = at.state})
end

local function close_as(run, batch, a, state)
  local at = attempt(run, a)
  if not at then return reject('unknown_attempt') end
  if at.state == state then return duplicate() end
  if at.state ~= 'open' then return reject('attempt_closed') end
  change(run, batch, at, {state = state}, put)
  return commit()
end

function ledger.cut(run, batch, a) return close_as(run, batch, a, 'cut') end

function ledger.abandon(run, batch, a) return close_as(run, batch, a, 'abandoned') end

function ledger.reconcile(run, batch, a)
  local at = attempt(run, a)
  if not at then return reject('unknown_attempt') end
  if at.state == 'open' then return in_doubt('attempt_open') end
  if at.settled == 1 then
    if at.billed == a.gateway_billed then return duplicate() end
    return reject('already_reconciled')
  end
  if a.gateway_billed < at.durable then return reject('below_durable') end
  if not is_countable(batch, a.gateway_billed - at.billed) then return reject('schema') end
  change(run, batch, at, {billed = a.gateway_billed, settled = 1}, put)
  return commit()
end
