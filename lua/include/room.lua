-- room: what a run needs to be let into its batch: an admission to its plane, a place at the desk of runs, tokens.
--#include "include/run.lua"
local NO_ROOM = {capacity = true, bound_full = true, over_budget = true}

-- A run's place is named by the command and its position in it: random, and the same when the command is sent again.
-- The same name is its admission to the plane.
local function place_of_run(a, i) return a.command_id .. '.' .. i end

-- The runs that a command names in ARGV[2…], or nothing when one of them stands there twice.
local function named_runs(a)
  local ids, seen = {}, {}
  for i = 1, a.runs do
    ids[i] = ARGV[1 + i]
    if seen[ids[i]] then return nil end
    seen[ids[i]] = true
  end
  return ids
end

-- The entries that a command takes off, behind its runs; nothing when one of them is no entry's id.
local function read_entries(a)
  local entries = {}
  for i = 2 + a.runs, #ARGV do
    if not is_entry_id(ARGV[i]) then return nil end
    entries[#entries + 1] = ARGV[i]
  end
  return entries
end

-- The desk and the plane, as far as these runs are concerned.
local function open_room(a, batch, desk_key, planes_key, ids)
  local leases, admissions = {}, {'in_flight'}
  for i, id in ipairs(ids) do
    leases[i] = 'l:' .. place_of_run(a, i)
    admissions[2 * i] = 'a:' .. place_of_run(a, i)
    admissions[2 * i + 1] = 'k:' .. result_key(a, id)
  end
  return {batch = batch, desk = open_desk(desk_key, unpack(leases)), planes = open_row(planes_key, admissions)}
end

local function is_shadow_full(room, a)
  return a.plane == 'shadow' and int(room.planes, 'in_flight') >= int(room.batch, 'capacity')
end

local function is_budget_spent(batch, a)
  return batch.data.budget and int(batch, 'spent') + int(batch, 'reserved') + (a.expected or 0) > int(batch, 'budget')
end

-- Lets a run in, under its binding; or returns the refusal. Where one run more would be too many is asked before
-- anything of it is changed: then nothing is noted, and the runs before it stand. Of the budget nothing is reserved:
-- the calls do that.
local function let_in(room, a, run, run_id, i)
  local place = {step = run_id, lease = place_of_run(a, i)}
  local result = {key = result_key(a, run_id), plane = a.plane, admission = place.lease}
  local named = {key = result.key, admission = result.admission}
  local token = {run = run_id, candidate = a.candidate, judge = a.judge, epoch = 1}
  local is_taken = room.planes.data['k:' .. result.key] or run.data['p.row:' .. result.key]
  if is_shadow_full(room, a) or is_taken then
    return {d = plane.admit(room.planes, run, room.batch, result), by = 'plane.admit', args = named}
  elseif int(room.desk, 'in_flight') >= int(room.desk, 'bound') then
    return {d = admission.acquire(room.desk, run, place), by = 'admission.acquire', args = place}
  elseif is_budget_spent(room.batch, a) then
    return {d = reject('over_budget'), by = call.name}
  end
  local admitted = plane.admit(room.planes, run, room.batch, result)
  if admitted.verb ~= 'commit' then return {d = admitted, by = 'plane.admit', args = named} end
  step('plane.admit', admitted, named)
  local acquired = admission.acquire(room.desk, run, place)
  if acquired.verb ~= 'commit' then return {d = acquired, by = 'admission.acquire', args = place} end
  step('admission.acquire', acquired, place)
  local minted = judge.mint(run, token)
  if not step('judge.mint', minted, token) then return {d = minted, by = 'judge.mint', args = token} end
  put(run, 'place', place.lease)
end

-- Some were let in, or none had to be: the cursor moves on, and with the last one admission is over.
local function move_cursor(batch, a, count)
  put(batch, 'cursor', a.cursor + count)
  if int(batch, 'cursor') < int(batch, 'intended') then return false end
  step('histogram.drain', histogram.drain(batch))
  return true
end
