-- indoubt: the checks and changes of fence 3, for its own operations and for the pipeline's steps.
--
-- A pair is one call: a key in one epoch of a run.
-- Run row:   i.epoch  the run's epoch                                         i.r:<epoch>:<key>  a pair's result
--            i.p:<epoch>:<key>  a pair: '<outcome> <since, ms> <ttl, ms> <latest lease>'; the outcome is one of
--                none prepared COMMIT, and of REJECT the two kinds: undo (it may have started), never (it has not)
--            i.l:<epoch>:<bytes in key>:<key>:<lease>  the slot that this lease of the pair was granted
-- Slots row: <slot>  its last reservation: '<since, ms> <ttl, ms> <run>/<key>@<epoch>'; gone once it was bound
--#include "include/call.lua"
local indoubt = {}

local function pair_field(a) return 'i.p:' .. number_text(a.epoch) .. ':' .. a.key end
local function result_field(a) return 'i.r:' .. number_text(a.epoch) .. ':' .. a.key end
local function lease_field(a, lease_id)
  return 'i.l:' .. number_text(a.epoch) .. ':' .. number_text(#a.key) .. ':' .. a.key .. ':' .. lease_id
end

-- The fields of one call. All others of the run's row are left where they are.
function indoubt.fields(a)
  local fields = {'i.epoch', pair_field(a), result_field(a)}
  if a.lease_id then fields[#fields + 1] = lease_field(a, a.lease_id) end
  return fields
end

-- The slot that came with the lease that is quoted; no slot is called ''.
function indoubt.slot_of(run, a) return run.data[lease_field(a, a.lease_id)] or '' end

local function pair(run, a)
  local outcome, since, ttl, lease_id = (run.data[pair_field(a)] or ''):match('^(%a+) (%d+) (%d+) (.*)$')
  if not outcome then return {outcome = 'none', since = 0, ttl = 0, lease_id = ''} end
  return {outcome = outcome, since = tonumber(since), ttl = tonumber(ttl), lease_id = lease_id}
end

-- `write` is `put`, or `keep` for what a refusal changes too.
local function store(write, run, a, at)
  local text = at.outcome .. ' ' .. number_text(at.since) .. ' ' .. number_text(at.ttl) .. ' ' .. at.lease_id
  write(run, pair_field(a), text)
end

local function is_decided(at) return at.outcome ~= 'none' and at.outcome ~= 'prepared' end

local function is_live(at, now) return not is_decided(at) and now - at.since < at.ttl end

-- A reservation that ran out holds its slot no longer, decided or not; one that was bound is no longer here.
local function is_busy(slots, slot, now)
  local since, ttl = (slots.data[slot] or ''):match('^(%d+) (%d+) ')
  return since ~= nil and now - tonumber(since) < tonumber(ttl)
end

local function is_stale(run, a) return a.epoch < int(run, 'i.epoch') end

function indoubt.turn(run, a)
  if is_stale(run, a) then return reject('stale_epoch') end
  if a.epoch == int(run, 'i.epoch') then return duplicate() end
  put(run, 'i.epoch', a.epoch)
  return commit()
end

function indoubt.reserve(run, slots, a, now)
  -- The lease id belongs to the command: this one was sent before, and its answer is told again.
  local granted = run.data[lease_field(a, a.lease_id)]
  if granted then return duplicate({lease_id = a.lease_id, slot = granted}) end
  local at = pair(run, a)
  if is_decided(at) then return reject('already_decided') end
  if is_stale(run, a) then return reject('stale_epoch') end
  if is_live(at, now) then
    return duplicate({lease_id = at.lease_id, slot = run.data[lease_field(a, at.lease_id)]})
  end
  if at.outcome == 'prepared' then return in_doubt('recover_first') end
  if is_busy(slots, a.slot, now) then return reject('slot_busy') end
  put(run, 'i.epoch', a.epoch)
  store(put, run, a, {outcome = 'none', since = now, ttl = a.ttl_ms, lease_id = a.lease_id})
  put(run, lease_field(a, a.lease_id), a.slot)
  local held = table.concat({a.run, '/', a.key, '@', number_text(a.epoch)})
  put(slots, a.slot, table.concat({number_text(now), number_text(a.ttl_ms), held}, ' '))
  return commit({lease_id = a.lease_id, slot = a.slot})
end

-- What prepare and bind ask of an undecided pair's holder. An impostor learns that he is none, and decides nothing.
local function not_its_holder(run, a, at, now)
  if at.lease_id ~= a.lease_id then return reject('lease_mismatch') end
  if is_stale(run, a) then return reject('stale_epoch') end
  if not is_live(at, now) then return reject('lease_expired') end
end

function indoubt.prepare(run, a, now)
  local at = pair(run, a)
  if is_decided(at) then return reject('already_decided') end
  local refusal = not_its_holder(run, a, at, now)
  if refusal then return refusal end
  -- Not `duplicate`: the lease travels with the job, so this may be the job's second delivery.
  if at.outcome == 'prepared' then return in_doubt('already_prepared') end
  at.outcome = 'prepared'
  store(put, run, a, at)
  return commit()
end

function indoubt.bind(run, slots, a, now)
  local at = pair(run, a)
  if at.outcome == 'COMMIT' and run.data[result_field(a)] == a.result then return duplicate() end
  if is_decided(at) then return reject('already_decided') end
  local refusal = not_its_holder(run, a, at, now)
  if refusal then return refusal end
  if at.outcome ~= 'prepared' then return reject('not_prepared') end
  at.outcome = 'COMMIT'
  store(put, run, a, at)
  put(run, result_field(a), a.result)
  drop(slots, indoubt.slot_of(run, a)) -- it is still this pair's: nobody is granted a slot that is live
  return commit()
end

-- The tombstone is what the answer keeps: whoever is told that a call is over must find it over.
function indoubt.recover(run, a, now)
  local at = pair(run, a)
  if at.outcome == 'COMMIT' then return commit({result = run.data[result_field(a)]}) end
  if is_live(at, now) then return in_doubt('lease_live') end
  if not is_decided(at) then
    at.outcome = at.outcome == 'prepared' and 'undo' or 'never'
    store(keep, run, a, at)
  end
  if at.outcome == 'never' then return reject('never_started') end
  return {verb = 'compensate', answer = {undo_id = a.key .. '~undo'}}
end
