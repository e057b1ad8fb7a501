-- calls: what the steps of model calls share: which call a place is for, how chunks are billed, how a call is settled.
--
-- Run row:   m.i:<seq>  '<digest> <step>': the intention at seq is a model call's; another intention is a fan-out's
-- Batch row: estimated  of the tokens spent: those that nobody measured
--#include "include/run.lua"
local MOST_CHUNKS = 200

local function is_step_of(a, prefix)
  return is_line(a.step) and a.step:sub(1, #prefix) == prefix and #a.step > #prefix
end

-- A step of this run, under ids that a line of `calls` can hold.
local function is_call(a, prefix)
  return is_word(a.desk_lease) and (not a.request_id or is_word(a.request_id)) and is_step_of(a, prefix)
end

-- The step's answer is bound, and this request was the one that was answered.
local function is_bound_by(run, a)
  local request = latest(run, a.step)
  return request and request.state == 'bound' and request.id == a.request_id and request.gen == a.gen
    and run.data['c.p:' .. a.step] == a.prompt_hash
end

-- The open call that has this place at a desk.
local function call_at(run, lease)
  for _, one in ipairs(open_calls(run)) do
    if one.lease == lease then return one end
  end
end

-- A place stands for one attempt of one run at one step. Who names it with another confuses two calls.
local function is_mixed_up(run, desk, a)
  if not held(desk, a.desk_lease) then
    local gone = past(run, a.desk_lease)
    return gone ~= nil and gone.step ~= a.step
  end
  local mine = call_at(run, a.desk_lease)
  return not mine or mine.step ~= a.step or mine.attempt ~= a.attempt or (a.request_id or mine.request) ~= mine.request
end

-- The call of a step that has a live place, for whoever wants to open another beside it.
local function in_flight(run, step_name)
  local lease = run.data['d.live:' .. step_name]
  local mine = lease and call_at(run, lease)
  if mine then return {request = mine.request, attempt = mine.attempt, desk_lease = lease} end
end

-- Takes a place for the call and reserves what it may spend: the fences that a model call and a judge's share.
-- Returns the place's generation, or nothing when one of them refused.
local function take_place(run, batch, desk, a)
  local place = {step = a.step, lease = a.desk_lease}
  local d = admission.acquire(desk, run, place)
  if d.reason == 'step_in_flight' then d.answer = in_flight(run, a.step) or d.answer end
  -- A place that was taken before is not one for this attempt.
  if d.verb == 'duplicate' then
    step(call.name, reject('lease_reused'))
    return nil
  end
  if not step('admission.acquire', d, place) then return nil end
  local admitted = ledger.admit(run, batch, a)
  if admitted.reason == 'over_budget' then
    admitted.answer = {spent = int(batch, 'spent'), reserved = int(batch, 'reserved')}
  end
  if not step('ledger.admit', admitted) then return nil end
  note_call(run, a)
  return d.answer.gen
end

local function whole(text, least)
  local n = (text or ''):match('^%d+$') and tonumber(text)
  return n and n >= least and n <= MAX_INT and n or nil
end

-- The chunks that a command carries from ARGV[first] on, three arguments each; nothing when one of them is none.
local function read_chunks(a, first)
  if a.chunks > MOST_CHUNKS then return nil end
  local found = {}
  for i = 1, a.chunks do
    local at = first + 3 * (i - 1)
    local seq, tokens, durable = whole(ARGV[at], 1), whole(ARGV[at + 1], 0), ARGV[at + 2]
    if not seq or not tokens or (durable ~= '1' and durable ~= '0') then return nil end
    found[i] = {step = a.step, attempt = a.attempt, seq = seq, tokens = tokens, durable = durable == '1'}
  end
  return found
end

-- What was delivered was spent, whoever presents it and whatever becomes of the command that carries it. Returns the
-- first refusal if there is one, else the last chunk's answer; a duplicate only when there was nothing new. `guessed` of
-- their tokens nobody measured: counted as such as far as they are billed now, and so not once more when they come again.
local function bill(run, batch, chunks, guessed)
  local before, said = int(batch, 'spent'), nil
  for _, chunk in ipairs(chunks) do
    local d = ledger.chunk(run, batch, chunk, keep)
    local args = {seq = chunk.seq, tokens = chunk.tokens, durable = chunk.durable}
    step_kept('ledger.chunk', d, args)
    if not said or said.verb == 'duplicate' or (said.verb == 'commit' and d.verb == 'reject') then
      said = d
    elseif said.verb == 'commit' then
      said.answer = d.answer
    end
  end
  local more = math.min(guessed or 0, int(batch, 'spent') - before)
  if more > 0 then keep(batch, 'estimated', int(batch, 'estimated') + more) end
  return said
end

-- Closes the attempt of a call that will not be bound, and settles it at `figure`, or at what its chunks say. Nothing
-- below what is durable: that much was had. False when the ledger refuses.
local function settle_attempt(run, batch, named, figure)
  local at = attempt(run, named)
  if not at or at.state == 'committed' or at.settled == 1 then return true end
  if at.state == 'open' then step('ledger.cut', ledger.cut(run, batch, named), named) end
  local settled = {
    step = named.step, attempt = named.attempt, gateway_billed = math.max(figure or at.billed, at.durable),
  }
  return step('ledger.reconcile', ledger.reconcile(run, batch, settled), settled)
end

-- Whether this call was given up before and settled so: with no figure, whatever it was settled at.
local function was_settled_at(run, a, figure)
  local at = attempt(run, a)
  if not at or not past(run, a.desk_lease) or at.settled == 0 then return false end
  return at.billed == math.max(figure or at.billed, at.durable)
end

-- The call that a swept place was for, if it was a call's. Without a figure its request may have gone on to spend all
-- that it was admitted for: so much is charged, and what nobody measured of it is counted.
local function settle_swept(run, batch, lease, figure)
  local one = call_at(run, lease)
  if not one then return end
  local named = {step = one.step, attempt = one.attempt}
  local at = attempt(run, named)
  if at then
    local guess = at.state == 'open' and math.max(at.billed, at.estimate) or at.billed
    settle_attempt(run, batch, named, figure or guess)
    if not figure and guess > at.billed then add(batch, 'estimated', guess - at.billed) end
  end
  forget_call(run, lease)
end

-- The answer counts: the place is used by it, and free. False when the desk refuses.
local function give_answer(run, desk, a)
  local applied = {step = a.step, lease = a.desk_lease, gen = a.desk_gen, digest = a.digest}
  if not step('admission.apply', admission.apply(desk, run, applied), applied) then return false end
  local place = {step = a.step, lease = a.desk_lease}
  if not step('admission.release', admission.release(desk, run, place), place) then return false end
  forget_call(run, a.desk_lease)
  return true
end

-- A refusal that changes things: every part noted so far stands, and is recorded.
local function refused_all_standing(d, by)
  write_rows()
  count_refusal(d)
  record(call.parts, true)
  return reply(d, by)
end

-- An answer that is none, after its first fence has said so: the attempt is cut, the place free for the next one.
local function give_up_answer(run, batch, desk, a)
  if not call_at(run, a.desk_lease) then return end
  local at = attempt(run, a)
  if at and at.state == 'open' then step('ledger.cut', ledger.cut(run, batch, a)) end
  local place = {step = a.step, lease = a.desk_lease}
  step('admission.release', admission.release(desk, run, place), place)
  forget_call(run, a.desk_lease)
end
