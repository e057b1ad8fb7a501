-- admission: the checks and changes of fence 11.
--
-- Desk row: bound, in_flight, generation, reclaim_ms
--           l:<lease>  a lease that still holds a place: 'live|expired <gen> <expired since, ms> <step>'
-- Run row:  d.live:<step>  the step's live lease, or the one that committed it: live until it is in `d.past`
--           d.done:<step>  the lease that committed it; '' for that in `d.live`
--           d.what:<step>  the digest it committed; absent where that is the score's, `h.digest`
--           d.past:<lease>  '<gen> <step>' of one that gave its place back
--#include "include/call.lua"
local admission = {}

local function held(desk, lease)
  local text = desk.data['l:' .. lease]
  if not text then return nil end
  local state, gen, since, step = text:match('^(%a+) (%d+) (%d+) (.*)$')
  return {state = state, gen = tonumber(gen), since = tonumber(since), step = step}
end

local function past(run, lease)
  local text = run.data['d.past:' .. lease]
  if not text then return nil end
  local gen, step = text:match('^(%d+) (.*)$')
  return {gen = tonumber(gen), step = step}
end

local function hold(desk, lease, entry)
  put(desk, 'l:' .. lease,
    entry.state .. ' ' .. number_text(entry.gen) .. ' ' .. number_text(entry.since) .. ' ' .. entry.step)
end

local function give_back(desk, run, lease, entry)
  if not run.data['d.done:' .. entry.step] and run.data['d.live:' .. entry.step] == lease then
    strike(run, 'd.live:' .. entry.step)
  end
  strike(desk, 'l:' .. lease)
  put(run, 'd.past:' .. lease, number_text(entry.gen) .. ' ' .. entry.step)
  add(desk, 'in_flight', -1)
end

function admission.acquire(desk, run, a)
  local mine = held(desk, a.lease) or past(run, a.lease)
  if mine and mine.step ~= a.step then return reject('lease_reused') end
  if mine then return duplicate({lease = a.lease, gen = mine.gen}) end
  if run.data['d.done:' .. a.step] then return reject('step_committed') end
  if run.data['d.live:' .. a.step] then return reject('step_in_flight') end
  if int(desk, 'in_flight') >= int(desk, 'bound') then return reject('bound_full') end
  add(desk, 'generation', 1)
  add(desk, 'in_flight', 1)
  hold(desk, a.lease, {state = 'live', gen = int(desk, 'generation'), since = 0, step = a.step})
  put(run, 'd.live:' .. a.step, a.lease)
  return commit({lease = a.lease, gen = int(desk, 'generation')})
end

function admission.expire(desk, run, a, now)
  local entry = held(desk, a.lease)
  if not entry or entry.state ~= 'live' then return reject('not_live') end
  add(desk, 'generation', 1)
  entry.state, entry.since = 'expired', now
  hold(desk, a.lease, entry)
  if run.data['d.done:' .. entry.step] == '' then put(run, 'd.done:' .. entry.step, run.data['d.live:' .. entry.step]) end
  drop(run, 'd.live:' .. entry.step)
  return commit({gen = int(desk, 'generation')})
end

local function done_by(run, step)
  local lease = run.data['d.done:' .. step]
  if lease == '' then return run.data['d.live:' .. step] end
  return lease
end

local function digest_of(run, step) return run.data['d.what:' .. step] or run.data['h.digest'] end

-- `is_of_score`: the caller has compared the digest with that of the run's score.
function admission.apply(desk, run, a, is_of_score)
  if done_by(run, a.step) == a.lease and digest_of(run, a.step) == a.digest then return duplicate() end
  local entry = held(desk, a.lease)
  if not entry or entry.state ~= 'live' or entry.gen ~= a.gen then return reject('stale_gen') end
  if run.data['d.done:' .. entry.step] then return reject('step_committed') end
  put(run, 'd.done:' .. entry.step, '')
  if not is_of_score then put(run, 'd.what:' .. entry.step, a.digest) end
  return commit()
end

function admission.release(desk, run, a)
  local entry = held(desk, a.lease)
  if not entry then
    if past(run, a.lease) then return reject('double_release') end
    return reject('unknown_lease')
  end
  give_back(desk, run, a.lease, entry)
  return commit()
end

function admission.reclaim(desk, run, a, now)
  local entry = held(desk, a.lease)
  if not entry then
    if past(run, a.lease) then return reject('double_release') end
    return reject('unknown_lease')
  end
  if entry.state == 'live' then return reject('still_live') end
  if not a.cancelled and now - entry.since < int(desk, 'reclaim_ms') then return in_doubt('cancel_pending') end
  give_back(desk, run, a.lease, entry)
  return commit()
end
