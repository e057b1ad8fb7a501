-- join: the checks and changes of fence 12, for its own operations and for the pipeline's steps.
--
-- Run row:   f.c:<case>         '<OPEN|JOINED|COMMITTED|ABORTED> <n> <window cost> <spent> <attempts not joined yet>';
--                               n is the case's number in the run, 0 for one that never opened
--            f.n                the last number given          f.w:<n>  the hash that names the window
--            f.a:<n>:<attempt>  'wait' or 'in', of the attempts that are expected
--            f.v:<n>            the verdict
-- Batch row: budget; window_tokens  what windows hold, or have spent for good
--#include "include/call.lua"
local join = {}
local MAX_ATTEMPTS = 1000 -- of one window: each is a field of its own, and all are written at once

join.batch_fields = {'budget', 'window_tokens'}

function join.fields(case) return {'f.n', 'f.c:' .. case} end

local function find(run, case)
  local state, n, cost, spent, left = (run.data['f.c:' .. case] or ''):match('^(%u+) (%d+) (%d+) (%d+) (%d+)$')
  if not state then return nil end
  return {state = state, n = n, cost = tonumber(cost), spent = tonumber(spent), left = tonumber(left)}
end

local function text_of(at)
  return table.concat({at.state, at.n, number_text(at.cost), number_text(at.spent), number_text(at.left)}, ' ')
end

local function is_closed(at) return at.state == 'COMMITTED' or at.state == 'ABORTED' end
-- A batch that declares no budget has no end of tokens.
local function remaining(batch) return tonumber(batch.data.budget or MAX_INT) - int(batch, 'window_tokens') end

-- The expected attempts, from their JSON text, each once; nil when it is no list of texts.
local function read_set(text)
  local readable, list = pcall(cjson.decode, text)
  if not readable or type(list) ~= 'table' or #list == 0 or #list > MAX_ATTEMPTS then return nil end
  local set, count = {}, 0
  for _, attempt in ipairs(list) do
    if not is_text(attempt) then return nil end
    if not set[attempt] then count = count + 1 end
    set[attempt] = true
  end
  return {set = set, count = count}
end

-- The hash that names a case's window; nil for one that never opened.
function join.window(run, case)
  local at = find(run, case)
  return at and run.data['f.w:' .. at.n] or nil
end

-- What joining these attempts reads of the case.
function join.attempt_fields(run, case, attempts)
  local at = find(run, case)
  if not at then return {} end
  local fields = {'f.w:' .. at.n}
  for i, attempt in ipairs(attempts) do fields[i + 1] = 'f.a:' .. at.n .. ':' .. attempt end
  return fields
end

-- The tokens that a case's window held when it opened.
function join.cost(run, case) return find(run, case).cost end

function join.is_committed(run, case)
  local at = find(run, case)
  return at ~= nil and at.state == 'COMMITTED'
end

-- `a.window` is the hash as the caller computed it over the case, the set and the budget's epoch: the same hash is the
-- same set. The server has no SHA-256.
function join.admit(run, batch, a)
  local expected = read_set(a.expected)
  if not expected then return reject('schema') end
  local known = find(run, a.case)
  if known then
    if is_closed(known) then return reject('case_closed') end
    if run.data['f.w:' .. known.n] ~= a.window then return reject('expected_mismatch') end
    return duplicate({window = a.window, remaining = remaining(batch)})
  end
  if remaining(batch) < a.window_cost then
    keep(run, 'f.c:' .. a.case, 'ABORTED 0 0 0 0')
    return reject('over_budget')
  end
  add(run, 'f.n', 1)
  local n = run.data['f.n']
  put(run, 'f.w:' .. n, a.window)
  for attempt in pairs(expected.set) do put(run, 'f.a:' .. n .. ':' .. attempt, 'wait') end
  put(run, 'f.c:' .. a.case, text_of({state = 'OPEN', n = n, cost = a.window_cost, spent = 0, left = expected.count}))
  add(batch, 'window_tokens', a.window_cost)
  return commit({window = a.window, remaining = remaining(batch)})
end

function join.result(run, a)
  local at = find(run, a.case)
  if not at then return reject('unknown_case') end
  local told = {state = at.state}
  if is_closed(at) then return reject('late', told) end
  if run.data['f.w:' .. at.n] ~= a.window then return reject('window_mismatch', told) end
  local place = 'f.a:' .. at.n .. ':' .. a.attempt
  if run.data[place] == 'in' then return reject('duplicate_attempt', told) end
  if not run.data[place] then return reject('unknown_attempt', told) end
  if a.tokens > at.cost - at.spent then
    at.state = 'ABORTED'
    keep(run, 'f.c:' .. a.case, text_of(at))
    return reject('window_exhausted', {state = at.state})
  end
  at.spent, at.left = at.spent + a.tokens, at.left - 1
  if at.left == 0 then at.state = 'JOINED' end
  put(run, place, 'in')
  put(run, 'f.c:' .. a.case, text_of(at))
  return commit({state = at.state})
end

-- What the window did not use comes back here and nowhere else: of an aborted one, late attempts may still spend it.
function join.commit(run, batch, a)
  local at = find(run, a.case)
  if at and at.state == 'COMMITTED' then
    if run.data['f.v:' .. at.n] == a.verdict then return duplicate({remaining = remaining(batch)}) end
    return reject('already_committed')
  end
  if not at or at.state ~= 'JOINED' then return reject('not_joined') end
  at.state = 'COMMITTED'
  put(run, 'f.c:' .. a.case, text_of(at))
  put(run, 'f.v:' .. at.n, a.verdict)
  add(batch, 'window_tokens', at.spent - at.cost)
  return commit({remaining = remaining(batch)})
end

function join.expire(run, a)
  local at = find(run, a.case)
  if not at then return reject('unknown_case') end
  if at.state ~= 'OPEN' then return reject('not_open') end
  at.state = 'ABORTED'
  put(run, 'f.c:' .. a.case, text_of(at))
  return commit()
end
