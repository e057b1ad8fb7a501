--[[ run.drop_call: give a model call up.
WHY      a place that nobody gives back closes the desk, and a reservation that nobody lifts eats the budget. Whoever
         opened a call may always close it: its place's own random id is asked for, and no lease of the run.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  desk_any   evb:{live.0}:b:<batch>:desk:<desk>        HASH
         4  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack   2… chunks
RETURNS  commit | duplicate | reject schema no_batch server_changed unknown_lease double_release not_live
]]
--#include "include/calls.lua"
local a, malformed = begin('run.drop_call', KEYS[4], KEYS[2], {
  server = 'str?', run = 'str', step = 'str', attempt = 'int1', desk = 'str', desk_lease = 'str', cancelled = 'bool',
  billed = 'int?', estimated = 'int', chunks = 'int',
})
if not a then return malformed end
if #ARGV ~= 1 + 3 * a.chunks or not is_call(a, a.run .. '~') then return refused(reject('schema')) end
local chunks = read_chunks(a, 2)
if not chunks then return refused(reject('schema')) end
local run, batch = open_row(KEYS[1]), open_batch(KEYS[2], 'clock', 'estimated', unpack(ledger.totals))
if elsewhere(batch, a) then return refused(reject('server_changed')) end
bill(run, batch, chunks, a.estimated)
local desk, place = open_desk(KEYS[3], 'l:' .. a.desk_lease), {step = a.step, lease = a.desk_lease}
if is_mixed_up(run, desk, a) then return refused(reject('schema')) end
local entry = held(desk, a.desk_lease)
if not entry and was_settled_at(run, a, a.billed) then return again(duplicate()) end
if a.cancelled then
  if not step('admission.release', admission.release(desk, run, place), place) then return refused() end
  if not settle_attempt(run, batch, {step = a.step, attempt = a.attempt}, a.billed) then return refused() end
  forget_call(run, a.desk_lease)
else
  if entry and entry.state == 'expired' then return again(duplicate()) end
  if not step('admission.expire', admission.expire(desk, run, place, now_ms(batch)), place) then return refused() end
end
return done(commit())
