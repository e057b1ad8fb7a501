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

-- An intent and its undo: what becomes of the one may become of the other.
local function both_of(id)
  local undone = undone_by(id) or id
  return {undone, undone .. UNDO}
end

-- What a step reads of one effect and its other half. A run may have many; those are left where they are.
function effects.open_run(key, id)
  local fields = {}
  for _, one in ipairs(both_of(id)) do
    for _, field in ipairs({'o.i:', 'o.t:', 'o.e:', 'o.n:', 'o.p:'}) do fields[#fields + 1] = field .. one end
  end
  return open_run(key, 'i.epoch', unpack(fields))
end

local function is_open(at) return at ~= nil and (WAITING[at.state] or at.state == 'compensating') end

function effects.census(run, id)
  local found = {open = 0, stuck = 0}
  for _, one in ipairs(both_of(id)) do
    local at = intent(run, one)
    if is_open(at) then found.open = found.open + 1 end
    if at and at.state == 'stuck' and not undone_by(one) then found.stuck = found.stuck + 1 end
  end
  return found
end

-- The states have changed since `was`, the census before.
function effects.follow(run, batch, id, was)
  local is = effects.census(run, id)
  if is.open ~= was.open then add(batch, 'effects_open', is.open - was.open) end
  if is.stuck ~= was.stuck then add(batch, 'stuck', is.stuck - was.stuck) end
  effects.touched[#effects.touched + 1] = id
end

-- A message for each effect that waits, none for one that does not. Beside the writes of the row.
function effects.write(run, run_id, stream)
  for _, id in ipairs(effects.touched) do
    for _, one in ipairs(both_of(id)) do
      local at, entry = intent(run, one), run.data['o.e:' .. one]
      local waits = at and WAITING[at.state]
      if waits and not entry then
        put(run, 'o.e:' .. one, redis.call('XADD', stream, '*', 'run', run_id, 'intent', one))
      elseif entry and not waits then
        acknowledge(stream, 'worker', entry)
        drop(run, 'o.e:' .. one)
      end
    end
  end
  effects.touched = {} -- the call's next command has its own
end

function effects.plane_key(a, id) return table.concat({a.plane, ':', a.run, ':', id}) end

-- An effect of an ended run is not begun any more; a sealed one has joined all it had.
local function is_over(run) return run.data.state ~= 'running' and run.data.state ~= 'queued' end

-- What never left ends as failed: nothing was done, and `why` is its observation. Whoever gives it up does so as its
-- executor: fence 2 knows no other way. False when it refuses.
function effects.give_up(run, batch, id, executor, why)
  local was, at = effects.census(run, id), intent(run, id)
  local whole = {intent_id = id}
  if at.state == 'executing' then step('outbox.recover', outbox.recover(run, batch, whole), whole) end
  local claim = {intent_id = id, gen = at.gen, executor = executor}
  if not step('outbox.claim', outbox.claim(run, claim), claim) then return false end
  local outcome = {intent_id = id, gen = at.gen, executor = executor, ok = false, observation = why}
  if not step('outbox.complete', outbox.complete(run, outcome), outcome) then return false end
  effects.follow(run, batch, id, was)
  return true
end

function effects.leave_plane(run, planes, id)
  local args = {admission = run.data['o.p:' .. id]}
  return step('plane.release', plane.release(planes, args), args)
end

-- A call left, and nobody has said what became of it. 2 and 3 began its bound together, and end it together.
function effects.recover(run, batch, planes, a, now)
  local was, id = effects.census(run, a.intent_id), a.intent_id
  local d = outbox.recover(run, batch, {intent_id = id}, now)
  step('outbox.recover', d, {intent_id = id})
  if d.verb == 'in_doubt' then return d end
  if not undone_by(id) then -- an undo has no pair: the one that it undoes is decided
    local pair = {key = id, epoch = int(run, 'conversation')}
    step('indoubt.recover', indoubt.recover(run, pair, now), pair)
  end
  effects.leave_plane(run, planes, id)
  if d.verb == 'reject' then add(batch, 'refused:' .. d.reason, 1) end
  effects.follow(run, batch, id, was)
  return d
end
