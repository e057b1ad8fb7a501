--[[ run.tool_sent: say that a tool's call is about to leave.
WHY      from here on silence is doubt. The plane, the slot and the two bounds are taken in one step, so that none of
         them can run out, or be refused, while the call is already under way.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  slots      evb:{live.0}:b:<batch>:slots              HASH
         4  planes     evb:{live.0}:b:<batch>:plane              HASH
         5  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <bound_ms> | duplicate <bound_ms>
         | reject schema no_batch server_changed ended unknown_intent stale_gen not_claimed plane_key duplicate_key capacity
         admission_reused already_decided stale_epoch slot_busy lease_mismatch lease_expired
         | in_doubt recover_first already_prepared
]]
--#include "include/effects.lua"
local a, malformed = begin('run.tool_sent', KEYS[5], KEYS[2], {
  server = 'str?', plane = 'str', run = 'str', intent_id = 'str', gen = 'int', executor = 'str', slot = 'str?',
})
if not a then return malformed end
local id = a.intent_id
if not a.slot and not undone_by(id) then return refused(reject('schema')) end
local run = effects.open_run(KEYS[1], id, effects.call_fields(a))
local batch = open_batch(KEYS[2], 'clock', 'ack_bound_ms', 'capacity')
if elsewhere(batch, a) then return refused(reject('server_changed')) end
-- A batch that declares no bound gives nobody the right to call silence over.
local now, bound = now_ms(batch), tonumber(batch.data.ack_bound_ms or MAX_INT)
local sent = outbox.sent(run, a, now)
if sent.verb == 'duplicate' then return again(duplicate({bound_ms = bound})) end
if is_over(run) and not undone_by(id) then return refused(reject('ended')) end
if not step('outbox.sent', sent) then return refused() end
local planes, key = effects.open_planes(KEYS[4], a, a.executor), effects.plane_key(a, id)
local admission = planes.data['k:' .. key] -- one that is in flight for the key already is taken over
if not admission then
  admission = a.executor
  local place = {key = key, plane = a.plane, admission = admission}
  if not step('plane.admit', plane.admit(planes, run, batch, place), place) then return refused() end
end
if not undone_by(id) then -- an undo has no pair: the one that it undoes is decided
  local pair = {
    run = a.run, slot = a.slot, key = id, epoch = int(run, 'conversation'), ttl_ms = bound, lease_id = a.executor,
  }
  local reserved = indoubt.reserve(run, open_row(KEYS[3], {a.slot}), pair, now)
  if not step('indoubt.reserve', reserved, pair) then return refused() end
  local prepared = {key = id, epoch = pair.epoch, lease_id = a.executor}
  if not step('indoubt.prepare', indoubt.prepare(run, prepared, now), prepared) then return refused() end
end

-- writes
put(run, 'o.p:' .. id, admission)
return done(commit({bound_ms = bound}))
