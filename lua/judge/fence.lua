-- judge: the checks and changes of fence 6.
--
-- Run row:   j.candidate, j.judge, j.epoch  the bind token    j.first  its first epoch, unless that is 1; those
--            since then but the present one are tombstones     j.digest  the committed score
--            j.replayed  last epoch counted as replay    j.review  '1' while a person is asked
-- Batch row: judge_policy, replay_budget, replays
--#include "include/call.lua"
local judge = {}

judge.fields = {'judge_policy', 'replay_budget', 'replays'}

local function token(run)
  return {candidate = run.data['j.candidate'], judge = run.data['j.judge'], epoch = int(run, 'j.epoch')}
end

function judge.mint(run, a)
  if run.data['j.epoch'] then return reject('already_bound', token(run)) end
  put(run, 'j.candidate', a.candidate)
  put(run, 'j.judge', a.judge)
  put(run, 'j.epoch', a.epoch)
  if a.epoch ~= 1 then put(run, 'j.first', a.epoch) end
  return commit(token(run))
end

function judge.rebind(run, a)
  if not run.data['j.epoch'] then return reject('unbound') end
  if run.data['j.digest'] then return reject('already_scored') end
  if int(run, 'j.epoch') ~= a.epoch then return reject('stale_epoch') end
  put(run, 'j.candidate', a.candidate)
  put(run, 'j.judge', a.judge)
  add(run, 'j.epoch', 1)
  drop(run, 'j.review')
  return commit({epoch = int(run, 'j.epoch')})
end

-- What follows a mismatch is the suite's policy; a scored run is past every policy.
local function mismatch(run, batch, reason)
  if run.data['j.digest'] then return reject(reason) end
  if batch.data.judge_policy == 'review' then
    keep(run, 'j.review', '1')
    return in_doubt(reason)
  end
  if batch.data.judge_policy == 'replay' then
    local counted = run.data['j.replayed'] and int(run, 'j.replayed') == int(run, 'j.epoch')
    if not counted and int(batch, 'replays') >= int(batch, 'replay_budget') then return reject(reason) end
    if not counted then
      keep(run, 'j.replayed', int(run, 'j.epoch'))
      keep(batch, 'replays', int(batch, 'replays') + 1)
    end
    return replay(reason, {replays = int(batch, 'replays')})
  end
  return reject(reason)
end

function judge.commit(run, batch, a)
  if not run.data['j.epoch'] then return reject('unbound') end
  if int(run, 'j.epoch') ~= a.epoch then return reject('stale_epoch') end
  if run.data['j.judge'] ~= a.observed_judge then return mismatch(run, batch, 'judge_mismatch') end
  if run.data['j.candidate'] ~= a.observed_candidate then return mismatch(run, batch, 'candidate_mismatch') end
  local answer = {replays = int(batch, 'replays')}
  if run.data['j.digest'] then
    if run.data['j.digest'] == a.score_digest then return duplicate(answer) end
    return reject('already_scored')
  end
  put(run, 'j.digest', a.score_digest)
  if batch.data.judge_policy == 'review' then drop(run, 'j.review') end
  return commit(answer)
end
