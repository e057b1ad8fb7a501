-- run: what the pipeline's steps share: the life of a run, who owns an entry, how a message leaves and how it ends.
--
-- Run row:   state    queued running sealed scoring scored hole      entry  the one stream entry that counts
--            place    its lease at the desk of runs                  consumer  who claimed it last
--            attempts, s.attempts  claims so far                     s.lease  the scorer's live lease
--            yields, s.yields  hand-backs so far
--            end:<lease id>  the step that ended that lease: its resend is a duplicate, also when the run has moved on
--            tree, artifact  the sealed workspace                    detail  what an ended run says of itself
-- Batch row: n:<state>  runs in that state
-- A step names the fields of the batch and the desk that it nearly always needs; the others are read when it does.
--#include "transcript/fence.lua"
--#include "histogram/fence.lua"
--#include "judge/fence.lua"
--#include "admission/fence.lua"
local function open_batch(key, ...) return open_row(key, {'status', 'server', 'floor', ...}) end

-- The command was sent to another server than the batch's tokens were granted by: this one was restarted, or promoted.
-- Nothing counts before `restarted` has raised the floor.
local function elsewhere(batch, a) return a.server and batch.data.server and batch.data.server ~= a.server end
local function floor_of(batch) return int(batch, 'floor') end

-- A desk's hash holds every lease that has a place; a step needs its own only.
local function open_desk(key, ...)
  return open_row(key, {'bound', 'in_flight', 'generation', 'reclaim_ms', ...})
end

local function move(run, batch, state)
  if run.data.state then add(batch, 'n:' .. run.data.state, -1) end
  put(run, 'state', state)
  add(batch, 'n:' .. state, 1)
end

-- Below 2^64 in both halves: the server raises on any other, and a script must not raise after its first write.
local function is_entry_id(text)
  local ms, n = text:match('^(%d+)%-(%d+)$')
  return ms ~= nil and #ms < 20 and #n < 20
end

-- A command on a group. One that is gone has nothing pending; whoever reads next makes it again.
local function in_group(...)
  local found = redis.pcall(...)
  if not found.err then return found end
  if found.err:find('NOGROUP', 1, true) then return {} end
  error(found)
end

-- The pending list says to whom an entry was given last. A worker that was slow reads it here, not in its memory.
local function owns(stream, group, entry, consumer)
  return #in_group('XPENDING', stream, group, entry, entry, 1, consumer) == 1
end

-- XACK asks nobody: so it stands only here, behind a compare of the live lease or of the owner. The entry goes too:
-- what is left in a stream is what has not been handled, and a group that was lost begins again at 0.
local function acknowledge(stream, group, entry)
  redis.call('XACK', stream, group, entry)
  redis.call('XDEL', stream, entry)
end

local function emit(stream, run_id) return redis.call('XADD', stream, '*', 'run', run_id) end

local function ended_by(run, what, lease_id) return run.data['end:' .. lease_id] == what end
local function end_lease(run, what, lease_id) put(run, 'end:' .. lease_id, what) end

-- So often a run may be handed back without its being counted as an attempt: machines that are taken away say nothing
-- about it, and hardly one run meets so many. One that itself sends its process the signal to stop meets no end of them.
local FREE_HAND_BACKS = 20

-- A lease is given up: a new message, for whoever comes first. Beyond the free hand-backs it is taken for a death: the
-- attempt counts, and the message stays where it is, so that the next holder takes the run for a suspect.
local function hand_back(run, run_id, stream, group, attempts, hand_backs)
  add(run, hand_backs, 1)
  if int(run, hand_backs) > FREE_HAND_BACKS then return end
  add(run, attempts, -1)
  acknowledge(stream, group, run.data.entry)
  put(run, 'entry', emit(stream, run_id))
end

local function scorer_is_live(run, a, floor)
  return run.data.state == 'scoring' and run.data['s.lease'] == a.lease_id and int(run, 'h.epoch') == a.gen
    and a.gen > floor
end

-- A run gives its place at the desk back exactly once, when it ends.
local function leave_desk(run, desk)
  local args = {step = call.run, lease = run.data.place}
  return step('admission.release', admission.release(desk, run, args), args)
end

-- The run ends as a hole: its lease is taken away, its place given back. False when the histogram refuses.
local function make_hole(run, batch, desk, run_id, why, detail)
  call.run = run_id
  local hole = {run = run_id, epoch = int(run, 'h.epoch'), why = why}
  if not step('histogram.abandon', histogram.abandon(run, batch, hole), hole) then return false end
  if run.data['t.lease'] and int(run, 't.gen') > floor_of(batch) then
    local fence = {run = run_id, gen = int(run, 't.gen')}
    step('transcript.fence', transcript.fence(run, fence), fence)
  end
  if run.data.place then leave_desk(run, desk) end
  drop(run, 's.lease')
  if detail and detail ~= '' then put(run, 'detail', detail) end
  move(run, batch, 'hole')
  add(batch, 'hole:' .. why, 1)
  return true
end
