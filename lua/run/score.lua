--[[ run.score: sign a score.
WHY      the score counts once, under the epoch, the sealed head and the judge that were bound; the place at the
         desk, the result and the acknowledgement go with it.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  desk       evb:{live.0}:b:<batch>:desk:runs          HASH
         4  desk_model evb:{live.0}:b:<batch>:desk:model         HASH
         5  desk_judge evb:{live.0}:b:<batch>:desk:judge         HASH
         6  planes     evb:{live.0}:b:<batch>:plane              HASH
         7  scores     evb:{live.0}:b:<batch>:scores             STREAM
         8  results    evb:{live.0}:b:<batch>:results            STREAM
         9  review     evb:{live.0}:b:<batch>:review             SET
         10 history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate
         | reject schema no_batch server_changed stale_lease digest_mismatch unbound stale_epoch judge_mismatch candidate_mismatch already_scored tree_hash already_attached after_close unknown_run abandoned score_conflict stale_gen step_committed unknown_lease double_release
         | replay judge_mismatch candidate_mismatch | in_doubt judge_mismatch candidate_mismatch
]]
--#include "include/run.lua"
local SCHEMA_OF_BINS = 'bin/1' -- what a verdict on a tree is here: the name of a bin
local KINDS = {
  server = 'str?', run = 'str', lease_id = 'str', gen = 'int1', head = 'str', tree_hash = 'str?',
  observed_candidate = 'str?', observed_judge = 'str?', judge_epoch = 'int1', score_digest = 'str', bin = 'str',
  value = 'str', detail = 'str?',
}

local function open(key, a)
  return open_row(key, {
    'state', 'entry', 'place', 'tree', 'calls', 's.lease', 'h.epoch', 'h.digest', 'h.bin', 'h.why',
    'j.candidate', 'j.judge', 'j.epoch', 'j.digest', 'd.done:' .. a.run,
  })
end

local function ahead(packed, runs)
  local leases, admissions = {'bound', 'in_flight', 'generation', 'reclaim_ms'}, {'in_flight'}
  for i = 1, #packed do
    local place = open(runs[i], envelope_ahead(packed[i])).data.place
    if place then
      leases[#leases + 1], admissions[#admissions + 1] = 'l:' .. place, 'a:' .. place
    end
  end
  fields_ahead(KEYS[3], leases)
  fields_ahead(KEYS[6], admissions)
end
--#each
local a, malformed = begin('run.score', KEYS[10], KEYS[2], KINDS)
if not a then return malformed end
local run = opened[KEYS[1]] or open(KEYS[1], a)
local batch = open_batch(
  KEYS[2], 'replays', 'judge_policy', 'fenced', 'accepted', 'n:scoring', 'n:scored', 'bin:' .. a.bin)
if elsewhere(batch, a) then return refused(reject('server_changed')) end
if is_scored_by(run, a.lease_id) then return again(duplicate()) end
if not scorer_is_live(run, a, floor_of(batch)) then return refused(reject('stale_lease')) end
local desk = opened[KEYS[3]] or open_desk(KEYS[3], 'l:' .. run.data.place)
settle(run, batch, 'judge', KEYS[5])
local signed = {
  epoch = a.judge_epoch, observed_candidate = a.observed_candidate, observed_judge = a.observed_judge,
  score_digest = a.score_digest,
}
local named = a.observed_candidate and a.observed_judge
local d = named and judge.commit(run, batch, signed) or reject('unbound')
local granted = step('judge.commit', d, {epoch = a.judge_epoch})
if not granted and d.reason:match('_mismatch$') and not run.data['j.digest'] then
  -- Another judge answered than the one that was bound. The suite's policy: a hole, or parked until a rebind.
  if d.verb ~= 'in_doubt' then redis.call('HINCRBY', KEYS[2], 'refused:' .. d.reason, 1) end

  local why = a.detail or 'another ' .. d.reason:match('^%a+') .. ' answered than was bound'
  if d.verb == 'reject' then
    make_hole(run, batch, {desk = desk, model = KEYS[4], judge = KEYS[5], planes = KEYS[6]}, a.run, d.reason, why)
    end_lease(run, 'score_hole', a.lease_id)
    wake_planner(KEYS[8], a.run)
  else
    move(run, batch, 'sealed')
    put(run, 'detail', why)
    redis.call('SADD', KEYS[9], a.run)
  end
  acknowledge(KEYS[7], 'scorer', run.data.entry)
  write_rows()
  record(call.parts, true)
  return reply(d, 'judge.commit')
end
if not granted then return refused() end
if run.data.tree ~= '' then
  -- The scorer unpacked and hashed the tree itself: what it judged must be what was sealed.
  local verdict = {
    step = a.run, gen = int(run, 't.gen'), tree_hash = a.tree_hash, verdict = a.bin, schema = SCHEMA_OF_BINS,
  }
  local attached = a.tree_hash and workspace.attach(run, batch, verdict) or reject('schema')
  if not step('workspace.attach', attached, verdict) then return refused() end
end
local row = {digest = a.head, epoch = a.gen}
local scored = histogram.score(run, batch, {run = a.run, digest = a.head, epoch = a.gen, bin = a.bin, value = a.value})
if not step('histogram.score', scored, row) then return refused() end
local mine = held(desk, run.data.place)
local place = {step = a.run, lease = run.data.place, digest = a.head, gen = mine and mine.gen or 0}
if not step('admission.apply', admission.apply(desk, run, place, true), place) then return refused() end
call.run = a.run
if not leave_desk(run, desk, KEYS[6]) then return refused() end

-- writes
move(run, batch, 'scored')
wake_planner(KEYS[8], a.run)
acknowledge(KEYS[7], 'scorer', run.data.entry)
return done(commit())
