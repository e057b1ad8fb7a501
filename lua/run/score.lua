--[[ run.score: sign a score.
WHY      the score counts once, under the epoch, the sealed head and the judge that were bound; the place at the
         desk, the result and the acknowledgement go with it.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  desk       evb:{live.0}:b:<batch>:desk:runs          HASH
         4  scores     evb:{live.0}:b:<batch>:scores             STREAM
         5  results    evb:{live.0}:b:<batch>:results            STREAM
         6  review     evb:{live.0}:b:<batch>:review             SET
         7  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate
         | reject schema server_changed stale_lease digest_mismatch unbound stale_epoch judge_mismatch candidate_mismatch already_scored after_close unknown_run abandoned score_conflict stale_gen step_committed unknown_lease double_release
         | replay judge_mismatch candidate_mismatch | in_doubt judge_mismatch candidate_mismatch
]]
--#include "include/run.lua"
local a, malformed = begin('run.score', KEYS[7], KEYS[2], {
  server = 'str?', run = 'str', lease_id = 'str', gen = 'int1', head = 'str', observed_candidate = 'str?',
  observed_judge = 'str?', judge_epoch = 'int1', score_digest = 'str', bin = 'str', value = 'str',
})
if not a then return malformed end
local run = open_row(KEYS[1])
local batch = open_batch(KEYS[2], 'replays', 'fenced', 'accepted', 'n:scoring', 'n:scored', 'bin:' .. a.bin)
if elsewhere(batch, a) then return refused(reject('server_changed')) end
if ended_by(run, 'score', a.lease_id) then return again(duplicate()) end
if not scorer_is_live(run, a, floor_of(batch)) then return refused(reject('stale_lease')) end
local desk = open_desk(KEYS[3], 'l:' .. run.data.place)
local signed = {epoch = a.judge_epoch}
for _, field in ipairs({'observed_candidate', 'observed_judge', 'score_digest'}) do signed[field] = a[field] end
local named = a.observed_candidate and a.observed_judge
local d = named and judge.commit(run, batch, signed) or reject('unbound')
local granted = step('judge.commit', d, {epoch = a.judge_epoch})
if not granted and d.reason:match('_mismatch$') and not run.data['j.digest'] then
  -- Another judge answered than the one that was bound. The suite's policy: a hole, or parked until a rebind.
  if d.verb ~= 'in_doubt' then redis.call('HINCRBY', KEYS[2], 'refused:' .. d.reason, 1) end

  if d.verb == 'reject' then
    make_hole(run, batch, desk, a.run, d.reason, 'another ' .. d.reason:match('^%a+') .. ' answered than was bound')
    end_lease(run, 'score_hole', a.lease_id)
    emit(KEYS[5], a.run)
  else
    move(run, batch, 'sealed')
    drop(run, 's.lease')
    redis.call('SADD', KEYS[6], a.run)
  end
  acknowledge(KEYS[4], 'scorer', run.data.entry)
  write_rows()
  record(call.parts, true)
  return reply(d, 'judge.commit')
end
if not granted then return refused() end
local row = {digest = a.head, epoch = a.gen}
local scored = histogram.score(run, batch, {run = a.run, digest = a.head, epoch = a.gen, bin = a.bin, value = a.value})
if not step('histogram.score', scored, row) then return refused() end
local place = {step = a.run, lease = run.data.place, digest = a.head}
place.gen = held(desk, place.lease) and held(desk, place.lease).gen or 0
if not step('admission.apply', admission.apply(desk, run, place), place) then return refused() end
call.run = a.run
if not leave_desk(run, desk) then return refused() end

-- writes
drop(run, 's.lease')
end_lease(run, 'score', a.lease_id)
move(run, batch, 'scored')
emit(KEYS[5], a.run)
acknowledge(KEYS[4], 'scorer', run.data.entry)
return done(commit())
