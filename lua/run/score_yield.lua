--[[ run.score_yield: hand a score back at once.
WHY      a scorer that is told to stop must not make others wait for its lease to run out. `machine`, `seen`: as in `yield`.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  desk_judge evb:{live.0}:b:<batch>:desk:judge         HASH
         4  scores     evb:{live.0}:b:<batch>:scores             STREAM
         5  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate | reject schema no_batch server_changed stale_lease its_own_doing
]]
--#include "include/run.lua"
local a, malformed = begin('run.score_yield', KEYS[5], KEYS[2], {
  server = 'str?', run = 'str', lease_id = 'str', gen = 'int1', machine = 'str?', seen = 'int?',
})
if not a then return malformed end
if a.machine and not is_word(a.machine) then return refused(reject('schema')) end
local run, batch = open_row(KEYS[1]), open_batch(KEYS[2], 'n:scoring', 'n:sealed')
if elsewhere(batch, a) then return refused(reject('server_changed')) end
if ended_by(run, 'score_yield', a.lease_id) then return again(duplicate()) end
if not scorer_is_live(run, a, floor_of(batch)) then return refused(reject('stale_lease')) end
if a.machine and not note_unfit(run, 's.unfit', a.machine, int(batch, 'n:scoring') == 1, a.seen) then
  return refused(reject('its_own_doing'))
end
settle(run, batch, 'judge', KEYS[3])

-- writes
hand_back(run, a.run, KEYS[4], 'scorer', 's.attempts', 's.yields', a.machine)
end_lease(run, 'score_yield', a.lease_id)
move(run, batch, 'sealed')
return done(commit())
