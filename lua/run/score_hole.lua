--[[ run.score_hole: end a sealed run as a named hole.
WHY      a judgement that cannot be had is neither a pass nor a fail.
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
ARGV     1 envelope    msgpack   2 detail    text
RETURNS  commit | duplicate
         | reject schema no_batch server_changed stale_lease after_close unknown_run abandoned already_scored stale_epoch
]]
--#include "include/run.lua"
local a, malformed = begin('run.score_hole', KEYS[10], KEYS[2], {
  server = 'str?', run = 'str', lease_id = 'str?', gen = 'int', why = 'str',
})
if not a then return malformed end
local run = open_row(KEYS[1])
local batch = open_batch(KEYS[2], 'holes', 'fenced', 'heartbeat_ms', 'n:hole', 'hole:' .. a.why)
if elsewhere(batch, a) then return refused(reject('server_changed')) end
local who = a.lease_id or 'operator'
if ended_by(run, 'score_hole', who) and run.data['h.why'] == a.why then return again(duplicate()) end
local entitled
if a.lease_id then
  entitled = scorer_is_live(run, a, floor_of(batch))
else
  entitled = (run.data.state == 'sealed' or run.data.state == 'scoring') and int(run, 'h.epoch') == a.gen
end
if not entitled then return refused(reject('stale_lease')) end
local places = {desk = open_desk(KEYS[3], 'l:' .. run.data.place), model = KEYS[4], judge = KEYS[5], planes = KEYS[6]}
if not make_hole(run, batch, places, a.run, a.why, ARGV[2]) then return refused() end

-- writes
end_lease(run, 'score_hole', who)
redis.call('SREM', KEYS[9], a.run)
wake_planner(KEYS[8], a.run)
acknowledge(KEYS[7], 'scorer', run.data.entry)
return done(commit())
