--[[ run.open_judge: announce a call to the judge's model.
WHY      a judge's tokens are of the same budget, and its endpoint has a desk like the candidate's. Its lease is the
         scorer's, and it stands in no transcript.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  desk_judge evb:{live.0}:b:<batch>:desk:judge         HASH
         4  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <desk_gen> | duplicate <desk_gen>
         | reject schema no_batch server_changed stale_lease lease_reused step_committed step_in_flight bound_full already_committed attempt_reused over_budget
]]
--#include "include/calls.lua"
local a, malformed = begin('run.open_judge', KEYS[4], KEYS[2], {
  server = 'str?', run = 'str', lease_id = 'str', gen = 'int1', step = 'str', request_id = 'str', attempt = 'int1',
  desk = 'str', desk_lease = 'str', prompt_hash = 'str', estimate = 'int',
})
if not a then return malformed end
if a.desk ~= 'judge' or not is_call(a, a.run .. '~j' .. number_text(a.gen) .. '.') then
  return refused(reject('schema'))
end
local run, batch = open_row(KEYS[1]), open_batch(KEYS[2], unpack(ledger.totals))
if elsewhere(batch, a) then return refused(reject('server_changed')) end
local desk, gone = open_desk(KEYS[3], 'l:' .. a.desk_lease), past(run, a.desk_lease)
if gone and done_by(run, a.step) == a.desk_lease then return again(duplicate({desk_gen = gone.gen})) end
if not scorer_is_live(run, a, floor_of(batch)) then return refused(reject('stale_lease')) end
local place = held(desk, a.desk_lease)
if place and place.state == 'live' and not is_mixed_up(run, desk, a) then
  return again(duplicate({desk_gen = place.gen}))
end
local desk_gen = take_place(run, batch, desk, a)
if not desk_gen then return refused() end
return done(commit({desk_gen = desk_gen}))
