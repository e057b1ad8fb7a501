--[[ run.rebind: bind a parked score to another judge.
WHY      a change of judge is somebody's decision; the score is asked for anew, and the old token is gone.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  desk_judge evb:{live.0}:b:<batch>:desk:judge         HASH
         4  scores     evb:{live.0}:b:<batch>:scores             STREAM
         5  review     evb:{live.0}:b:<batch>:review             SET
         6  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <epoch> | duplicate <epoch>
         | reject schema no_batch server_changed ended unbound already_scored stale_epoch after_close
]]
--#include "include/run.lua"
local a, malformed = begin('run.rebind', KEYS[6], KEYS[2], {
  server = 'str?', run = 'str', epoch = 'int1', candidate = 'str', judge = 'str', command_id = 'str',
})
if not a then return malformed end
local run, batch = open_row(KEYS[1]), open_batch(KEYS[2])
if elsewhere(batch, a) then return refused(reject('server_changed')) end
if ended_by(run, 'rebind', a.command_id) then return again(duplicate({epoch = int(run, 'j.epoch')})) end
if histogram.closed(batch) then return refused(reject('after_close')) end
if run.data.state ~= 'sealed' and run.data.state ~= 'scoring' then return refused(reject('ended')) end
local d = judge.rebind(run, a)
if not step('judge.rebind', d) then return refused() end
settle(run, batch, 'judge', KEYS[3])

-- writes
acknowledge(KEYS[4], 'scorer', run.data.entry)
redis.call('SREM', KEYS[5], a.run)
drop(run, 'detail')
if run.data.state == 'scoring' then move(run, batch, 'sealed') end
put(run, 'entry', emit(KEYS[4], a.run))
end_lease(run, 'rebind', a.command_id)
return done(d)
