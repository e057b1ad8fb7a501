-- run: what the pipeline's steps share: the life of a run, who owns an entry, how a message leaves and how it ends.
--
-- Run row:   state    queued running sealed scoring scored hole      entry  the one stream entry that counts
--            place    its lease at the desk of runs, and its admission to its plane      consumer  who claimed it last
--            attempts, s.attempts  claims so far
--            lease    the last holder's, of any conversation: live while the run is running; fence 7 knows the chain's
--                     own, `t.lease`                                 s.lease  the last scorer's: live while it is scoring
--            conversation  its chain in fence 7 is <run>~<conversation>      turning  '1' once a `turn` was begun
--            calls    its calls that have a place at an endpoint's desk      windows  its fan-outs not joined yet
--            yields, s.yields  hand-backs so far by who had to stop
--            unfit, s.unfit  those of machines that could not do it: '<how many> <of them alone> <machine> …', where the
--                     last two leave out those whose machine itself found what was wrong with it
--            end:<lease id>  the step that ended that lease: its resend is a duplicate, also when the run has moved on.
--                     A seal's and a score's need none: they are the last that was done under `lease` and `s.lease`
--            tree, artifact  the sealed workspace                    detail  what an ended run says of itself
-- Batch row: n:<state>  runs in that state
--            effects_open  intents and undos that have not ended
-- A step names the fields of the batch and the desk that it nearly always needs; the others are read when it does.
-- A fence that the batch does not declare costs nothing: 4 is in the path where `compute_retries` is declared, 8 where
-- `heartbeat_ms` is, 9 where a tree was sealed; 10 and 12 are in the steps of calls and tools.
--#include "include/clock.lua"
--#include "completion/fence.lua"
--#include "transcript/fence.lua"
--#include "histogram/fence.lua"
--#include "judge/fence.lua"
--#include "admission/fence.lua"
--#include "plane/fence.lua"
--#include "sandbox/fence.lua"
--#include "workspace/fence.lua"
--#include "ledger/fence.lua"
--#include "join/fence.lua"
local function open_batch(key, ...)
  local batch = opened[key] -- `begin` has opened it
  if not batch.is_read then read_more(batch, {...}) end
  batch.is_read = true
  return batch
end

-- A run's hash grows with its tools and its writes. A step that looks through none of them reads what its holder's lease
-- and its chain are, and what else it names.
local function open_run(key, ...)
  return open_row(key, {'state', 'lease', 'conversation', 'turning', 't.gen', 't.lease', 't.head', 't.len', 't.sealed', ...})
end

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

-- What the commands of this call have acknowledged so far, in a list for each stream, and by the entry's id in the same
-- table: a stream's entries leave it together, at the call's end.
local acknowledged = {}

-- XACK asks nobody: so it stands only here, behind a compare of the live lease or of the owner. The entry goes too:
-- what is left in a stream is what has not been handled, and a group that was lost begins again at 0.
local function acknowledge(stream, group, entry)
  if not entry then error('there is no entry to acknowledge') end
  local gone = acknowledged[stream]
  if not gone then
    gone = {}
    acknowledged[stream] = gone
    at_end(function()
      if #gone == 0 then return end
      redis.call('XACK', stream, group, unpack(gone))
      redis.call('XDEL', stream, unpack(gone))
    end)
  end
  if gone[entry] then return end
  gone[#gone + 1] = entry
  gone[entry] = true
  regrets[#regrets + 1] = gone
end

local known_owner = {} -- by entry, of this call's stream: the consumer that has it, as far as `owners_ahead` saw

-- The pending list says to whom an entry was given last. A worker that was slow reads it here, not in its memory.
local function owns(stream, group, entry, consumer)
  if acknowledged[stream] and acknowledged[stream][entry] then return false end
  if known_owner[entry] == consumer then return true end
  return #in_group('XPENDING', stream, group, entry, entry, 1, consumer) == 1
end

-- For `ahead`: entries that a consumer read together stand together in its pending list. Only a command of this call
-- takes one off it, and `acknowledged` knows that one; who is not found here is asked for by itself.
local function owners_ahead(stream, group, envelopes)
  local first, last = envelopes[1], envelopes[#envelopes]
  local most = 2 * #envelopes + 16
  local found = in_group('XPENDING', stream, group, first.entry, last.entry, most, first.consumer)
  for i = 1, #found do known_owner[found[i][1]] = first.consumer end
end

-- Likewise: of a hash that all of them share, the fields that they will ask for.
local function fields_ahead(key, fields)
  local row = opened[key]
  if row then read_more(row, fields) else open_row(key, fields) end
end

local function envelopes_of(packed)
  local found = {}
  for i = 1, #packed do found[i] = envelope_ahead(packed[i]) end
  return found
end

local function values_of(envelopes, field)
  local found = {}
  for i = 1, #envelopes do
    local value = envelopes[i][field]
    if is_text(value) then found[#found + 1] = value end
  end
  return found
end

local function emit(stream, run_id) return redis.call('XADD', stream, '*', 'run', run_id) end

-- A result wakes a planner up, and says nothing that the counters do not: of all that one call brings, one will do.
local is_woken = false
local function wake_planner(results, run_id)
  if not is_woken then emit(results, run_id) end
  is_woken = true
end

local function is_sealed_by(run, lease_id) return run.data['t.sealed'] and run.data.lease == lease_id end
local function is_scored_by(run, lease_id) return run.data.state == 'scored' and run.data['s.lease'] == lease_id end
local function ended_by(run, what, lease_id) return run.data['end:' .. lease_id] == what end
local function end_lease(run, what, lease_id) put(run, 'end:' .. lease_id, what) end

-- So often a run may be handed back without its being counted as an attempt: machines that are taken away say nothing
-- about it, and hardly one run meets so many. One that itself sends its process the signal to stop meets no end of them.
local FREE_HAND_BACKS = 20

-- A machine that is unfit (its disk is full, say) is not the run's doing, and to have the run again and again, while all
-- others are busy, says no more than once; and nothing at all where the machine finds it by its own look, too (`seen`): a
-- store that is away is so for whole fleets. It is the run's own doing when it does so to so many machines; and, as there
-- may be no more machines than one, after so many times while nobody else had a run of the batch. The last number is
-- there for the rest: a batch must end.
--
-- Notes that a machine is unfit for this run. False when by this one it is the run's own doing: its holder keeps it, and
-- says how it ends.
local function note_unfit(run, unfit, machine, alone, seen)
  local count, lone, machines = (run.data[unfit] or '0 0'):match('^(%d+) (%d+)(.*)$')
  local known = seen or (machines .. ' '):find(' ' .. machine .. ' ', 1, true)
  if not known then machines = machines .. ' ' .. machine end
  count = count + 1
  lone = lone + (alone and not seen and 1 or 0)
  local _, different = machines:gsub(' ', '')
  if different >= 5 or lone >= 10 or count >= 100 then return false end
  put(run, unfit, number_text(count) .. ' ' .. number_text(lone) .. machines)
  return true
end

-- A lease is given up: a new message, for whoever comes first. Beyond the free hand-backs of who had to stop it is taken
-- for a death: the attempt counts, and the message stays where it is, so that the next holder takes the run for a suspect.
-- `machine`: it was noted as unfit.
local function hand_back(run, run_id, stream, group, attempts, hand_backs, machine)
  if not machine then
    add(run, hand_backs, 1)
    if int(run, hand_backs) > FREE_HAND_BACKS then return end
  end
  add(run, attempts, -1)
  acknowledge(stream, group, run.data.entry)
  put(run, 'entry', emit(stream, run_id))
end

-- S.
local function scorer_is_live(run, a, floor)
  return run.data.state == 'scoring' and run.data['s.lease'] == a.lease_id and int(run, 'h.epoch') == a.gen
    and a.gen > floor
end

-- H.
local function holder_is_live(run, a, floor)
  return run.data.state == 'running' and run.data.lease == a.lease_id and int(run, 't.gen') == a.gen and a.gen > floor
end

-- The name under which fence 7 knows the run as it stands. The caller's conversation, and with it the transcript's key,
-- is compared before anything else: what is said of a chain that was given up belongs nowhere.
local function chain_of(run, run_id) return run_id .. '~' .. number_text(int(run, 'conversation')) end
local function has_turned(run, a) return a.conversation ~= int(run, 'conversation') end

-- The envelope as fence 7 takes it: the chain for its run and, of the live holder, the lease that the chain knows.
local function on_chain(run, a)
  local lease_id = a.lease_id
  if run.data.state == 'running' and run.data.lease == lease_id then lease_id = run.data['t.lease'] or lease_id end
  return setmetatable({run = chain_of(run, a.run), lease_id = lease_id}, {__index = a})
end

-- The arguments of a part of fence 7: the lease is among them when it is not the envelope's.
local function chain_args(a, chained, args)
  if chained.lease_id == a.lease_id then return args end
  args = args or {}
  args.lease_id = chained.lease_id
  return args
end

-- What a step without an operation of 4 or 7 asks of its caller: nil, or the refusal of the fence that would be first.
local function not_holder(run, batch, leases_key, a)
  if has_turned(run, a) then return reject('run_mismatch') end
  local floor = floor_of(batch)
  if holder_is_live(run, a, floor) then return nil end
  if batch.data.compute_retries then return reject('stale_lease') end
  return transcript.not_live(run, leases_key, on_chain(run, a), floor) or reject('sealed')
end

-- While a conversation is being given up its holder, or the next one, may do nothing else with it.
local function is_turning(run, a, floor) return run.data.turning and holder_is_live(run, a, floor) end

-- --- calls and windows: short lists in a field of the row, an item a line ------------------------------------------

local function lines_of(text)
  local found = {}
  for line in (text or ''):gmatch('[^\n]+') do found[#found + 1] = line end
  return found
end

local function put_lines(run, field, found)
  if #found > 0 then put(run, field, table.concat(found, '\n')) else drop(run, field) end
end

local function add_line(run, field, line)
  local found = lines_of(run.data[field])
  found[#found + 1] = line
  put_lines(run, field, found)
end

-- What can be a line, and what can be a word in it.
local function is_line(text) return is_text(text) and not text:find('%c') end
local function is_word(text) return is_text(text) and not text:find('[%s%c]') end

-- The calls that have a place at an endpoint's desk, from `acquire` until the place is given back: live or expired.
local function open_calls(run)
  if not run.data.calls then return NOTHING end
  local calls = {}
  for i, line in ipairs(lines_of(run.data.calls)) do
    local desk, lease, attempt, request, of = line:match('^(%S+) (%S+) (%d+) (%S+) (.*)$')
    calls[i] = {desk = desk, lease = lease, attempt = tonumber(attempt), request = request, step = of}
  end
  return calls
end

-- `a.desk_lease` and `a.request_id` must be words and `a.step` a line: else they could not be read back.
local function note_call(run, a)
  add_line(run, 'calls', table.concat({a.desk, a.desk_lease, number_text(a.attempt), a.request_id, a.step}, ' '))
end

local function forget_call(run, desk_lease)
  local left = {}
  for _, line in ipairs(lines_of(run.data.calls)) do
    if line:match('^%S+ (%S+)') ~= desk_lease then left[#left + 1] = line end
  end
  put_lines(run, 'calls', left)
end

local function call_is_live(run, one) return run.data['d.live:' .. one.step] == one.lease end

-- Nobody waits for what an ended lease left at a desk. The place and the reservation stay until `sweep`: the request
-- may still be on its way.
local function settle(run, batch, name, desk_key)
  local desk
  for _, one in ipairs(open_calls(run)) do
    if one.desk == name and call_is_live(run, one) then
      desk = desk or open_desk(desk_key)
      local args = {lease = one.lease}
      step('admission.expire', admission.expire(desk, run, args, now_ms(batch)), args)
    end
  end
end

-- The cases of fence 12 that were announced and not committed.
local function open_windows(run) return run.data.windows and lines_of(run.data.windows) or NOTHING end
-- `case` must be a line.
local function note_window(run, case) add_line(run, 'windows', case) end

local function forget_window(run, case)
  local left = {}
  for _, one in ipairs(open_windows(run)) do
    if one ~= case then left[#left + 1] = one end
  end
  put_lines(run, 'windows', left)
end

local function expire_windows(run)
  for _, case in ipairs(open_windows(run)) do
    local args = {case = case}
    local d = join.expire(run, args)
    if d.verb == 'commit' then step('join.expire', d, args) end
  end
  drop(run, 'windows')
end

-- --- how a lease and a run end ------------------------------------------------------------------------------------

-- The workspace of a run is named after it. What its holder left on a disk is nobody's from here on.
local function leave_workspace(run, batch, run_id)
  if not batch.data.heartbeat_ms then return end
  local now = now_ms(batch)
  local place = place_of(run, batch, run_id, now)
  if not place.beat then return end
  local args = {workspace = run_id, epoch = place.epoch}
  step('sandbox.preempt', sandbox.preempt(run, batch, args, now), args)
end

-- The run is taken from its holder, in every fence that knows one. A lease that a restart made void is none.
local function fence_holder(run, batch, run_id)
  local gen, floor = int(run, 't.gen'), floor_of(batch)
  if run.data['c.lease'] and gen > floor then
    local args = {run = run_id, gen = gen}
    step('completion.fence', completion.fence(run, args, floor), args)
  end
  if run.data['t.lease'] and gen > floor then
    local args = {run = chain_of(run, run_id), gen = gen}
    step('transcript.fence', transcript.fence(run, args, floor), args)
  end
  leave_workspace(run, batch, run_id)
end

-- The key of a run's result, on the plane that the command is for.
local function result_key(a, run_id) return a.plane .. ':' .. (run_id or a.run) .. ':result' end

-- A run gives its admission and its place at the desk of runs back exactly once, when it ends.
local function leave_desk(run, desk, planes_key)
  local admitted = {admission = run.data.place}
  local planes = opened[planes_key] or open_row(planes_key, {'a:' .. run.data.place, 'in_flight'})
  step('plane.release', plane.release(planes, admitted), admitted)
  local args = {step = call.run, lease = run.data.place}
  return step('admission.release', admission.release(desk, run, args), args)
end

-- The run ends as a hole: what its holder had is taken away, its places given back. False when the histogram refuses.
-- `places`: the row `desk`, and the keys of `planes` and of the `model`'s and the `judge`'s desk; none for a run that
-- was never admitted.
local function make_hole(run, batch, places, run_id, why, detail)
  call.run = run_id
  local hole = {run = run_id, epoch = int(run, 'h.epoch'), why = why}
  if not step('histogram.abandon', histogram.abandon(run, batch, hole), hole) then return false end
  if run.data.place then
    settle(run, batch, 'model', places.model)
    settle(run, batch, 'judge', places.judge)
    fence_holder(run, batch, run_id)
    expire_windows(run)
    leave_desk(run, places.desk, places.planes)
  end
  if detail and detail ~= '' then put(run, 'detail', detail) end
  move(run, batch, 'hole')
  add(batch, 'hole:' .. why, 1)
  return true
end
