-- effects: what the steps of tools share. An effect is an intent, or the undo of one (fence 2).
--
-- Run row:   o.e:<id>  the one stream entry that counts; none once nobody has to be given the effect any more
--            o.n:<id>  claims so far      o.p:<id>  its admission to its plane
-- Batch row: effects_open  effects that have not ended      stuck  intents that ended so; undos are not counted
-- Neither messages nor counts are kept by hand: both follow from the states that a step leaves.
--#include "include/run.lua"
--#include "outbox/fence.lua"
--#include "indoubt/fence.lua"
local effects = {touched = {}}
local WAITING = {queued = true, executing = true, awaiting_ack = true} -- for somebody who is given its message

-- Or may have: what is stuck had no inverse, or one that failed.
local HAS_UNDO = {compensating = true, compensated = true, stuck = true}

-- An intent and its undo, if it has one: what becomes of the one may become of the other.
local function both_of(run, id)
  local undone = undone_by(id) or id
  if HAS_UNDO[state_of(run, undone)] then return undone, undone .. UNDO end
  return undone
end

-- What a step reads of one effect, and `...`. A run may have many; those are left where they are. Of an undo, what it
-- undoes too; the undo of an intent is read when there is one.
function effects.open_run(key, id, ...)
  local undone = undone_by(id)
  local fields = {'state', 'conversation', 'o.i:' .. id, 'o.e:' .. id, ...}
  if undone then
    fields[#fields + 1] = 'o.i:' .. undone
    fields[#fields + 1] = 'o.e:' .. undone
  end
  local run = open_row(key, {})
  read_more(run, fields)
  return run
end

function effects.plane_key(a, id) return a.plane .. ':' .. a.run .. ':' .. id end

-- What a step reads of the pair and the key of one effect. The epoch is that of its name, unless its conversation was
-- given up: then the fields are read when they are asked for.
function effects.call_fields(a)
  local epoch = tonumber(a.intent_id:match('~(%d+)%.%d+%.%d+$')) or 0
  local fields = indoubt.fields({key = a.intent_id, epoch = epoch, lease_id = a.executor})
  fields[#fields + 1] = 'p.row:' .. effects.plane_key(a, a.intent_id)
  return unpack(fields)
end

-- What is known of an effect's plane, and the row.
function effects.open_planes(key, a, admission)
  local planes = open_row(key, plane.fields)
  read_more(planes, {'a:' .. admission, 'k:' .. effects.plane_key(a, a.intent_id)})
  return planes
end

local OPEN_STATES = {queued = true, executing = true, awaiting_ack = true, compensating = true}

-- How many of the effect and its undo have not ended, and how many intents have ended stuck.
function effects.census(run, id)
  local one, undo = both_of(run, id)
  local state, open = state_of(run, one), 0
  if OPEN_STATES[state] then open = 1 end
  if undo and OPEN_STATES[state_of(run, undo)] then open = open + 1 end
  return open, state == 'stuck' and 1 or 0
end

-- The states have changed since the census was `open` and `stuck`.
function effects.follow(run, batch, id, open, stuck)
  local is_open, is_stuck = effects.census(run, id)
  if is_open ~= open then add(batch, 'effects_open', is_open - open) end
  if is_stuck ~= stuck then add(batch, 'stuck', is_stuck - stuck) end
  effects.touched[#effects.touched + 1] = id
end

local function follow_message(run, run_id, stream, id)
  local entry, waits = run.data['o.e:' .. id], WAITING[state_of(run, id)]
  if waits and not entry then
    local tool = run.data['o.t:' .. id] -- what the reader looks for a slot of; the claim tells it again
    put(run, 'o.e:' .. id, redis.call('XADD', stream, '*', 'run', run_id, 'intent', id, 'tool', tool))
  elseif entry and not waits then
    acknowledge(stream, 'worker', entry)
    drop(run, 'o.e:' .. id)
  end
end

-- A message for each effect that waits, none for one that does not. Beside the writes of the row.
function effects.write(run, run_id, stream)
  for _, id in ipairs(effects.touched) do
    local one, undo = both_of(run, id)
    follow_message(run, run_id, stream, one)
    if undo then follow_message(run, run_id, stream, undo) end
  end
  effects.touched = {} -- the call's next command has its own
end

-- An effect of an ended run is not begun any more; a sealed one has joined all it had.
local function is_over(run) return run.data.state ~= 'running' and run.data.state ~= 'queued' end

-- What never left ends as failed: nothing was done, and `why` is its observation. Whoever gives it up does so as its
-- executor: fence 2 knows no other way. False when it refuses.
function effects.give_up(run, batch, id, executor, why)
  local at, open, stuck = intent(run, id), effects.census(run, id)
  local whole = {intent_id = id}
  if at.state == 'executing' then step('outbox.recover', outbox.recover(run, batch, whole), whole) end
  local claim = {intent_id = id, gen = at.gen, executor = executor}
  if not step('outbox.claim', outbox.claim(run, claim), claim) then return false end
  local outcome = {intent_id = id, gen = at.gen, executor = executor, ok = false, observation = why}
  if not step('outbox.complete', outbox.complete(run, outcome), outcome) then return false end
  effects.follow(run, batch, id, open, stuck)
  return true
end

function effects.leave_plane(run, planes, id)
  local args = {admission = run.data['o.p:' .. id]}
  return step('plane.release', plane.release(planes, args), args)
end

-- A call left, and nobody has said what became of it. 2 and 3 began its bound together, and end it together.
function effects.recover(run, batch, planes, a, now)
  local id, open, stuck = a.intent_id, effects.census(run, a.intent_id)
  local d = outbox.recover(run, batch, {intent_id = id}, now)
  step('outbox.recover', d, {intent_id = id})
  if d.verb == 'in_doubt' then return d end
  if not undone_by(id) then -- an undo has no pair: the one that it undoes is decided
    local pair = {key = id, epoch = int(run, 'conversation')}
    step('indoubt.recover', indoubt.recover(run, pair, now), pair)
  end
  effects.leave_plane(run, planes, id)
  if d.verb == 'reject' then add(batch, 'refused:' .. d.reason, 1) end
  effects.follow(run, batch, id, open, stuck)
  return d
end
