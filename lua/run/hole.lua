--[[ run.hole: end a run as a named hole.
WHY      a run that cannot go on must say so; else the close waits for it for ever.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  desk       evb:{live.0}:b:<batch>:desk:runs          HASH
         4  desk_model evb:{live.0}:b:<batch>:desk:model         HASH
         5  desk_judge evb:{live.0}:b:<batch>:desk:judge         HASH
         6  planes     evb:{live.0}:b:<batch>:plane              HASH
         7  runs       evb:{live.0}:b:<batch>:runs               STREAM
         8  results    evb:{live.0}:b:<batch>:results            STREAM
         9  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack   2 detail    text
RETURNS  commit | duplicate
         | reject schema no_batch server_changed stale_lease after_close unknown_run abandoned already_scored stale_epoch
]]
--#include "include/run.lua"
local a, malformed = begin('run.hole', KEYS[9], KEYS[2], {
  server = 'str?', run = 'str', lease_id = 'str?', gen = 'int', why = 'str',
})
if not a then return malformed end
local run = open_row(KEYS[1])
local batch = open_batch(KEYS[2], 'compute_retries', 'heartbeat_ms', 'holes', 'n:running', 'n:hole', 'hole:' .. a.why)
if elsewhere(batch, a) then return refused(reject('server_changed')) end
local who = a.lease_id or 'operator'
if ended_by(run, 'hole', who) and run.data['h.why'] == a.why then return again(duplicate()) end
-- The holder names its lease; an operator has none, and names the generation that he means to end.
local entitled
if a.lease_id then
  entitled = holder_is_live(run, a, floor_of(batch))
else
  entitled = (run.data.state == 'running' or run.data.state == 'queued') and int(run, 't.gen') == a.gen
end
if not entitled then return refused(reject('stale_lease')) end
local places = {desk = open_desk(KEYS[3], 'l:' .. run.data.place), model = KEYS[4], judge = KEYS[5], planes = KEYS[6]}
if not make_hole(run, batch, places, a.run, a.why, ARGV[2]) then return refused() end

-- writes
end_lease(run, 'hole', who)
wake_planner(KEYS[8], a.run)
acknowledge(KEYS[7], 'worker', run.data.entry)
return done(commit())
