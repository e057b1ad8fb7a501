--[[ run.tool_complete: say what a tool said.
WHY      an outcome is the effect's and not the holder's: it counts whatever became of its run, so that a holder that
         died, or a fan-out that was given up, hides no effect that stands.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  tools      evb:{live.0}:b:<batch>:tools              STREAM
         4  slots      evb:{live.0}:b:<batch>:slots              HASH
         5  planes     evb:{live.0}:b:<batch>:plane              HASH
         6  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack   2 observation text
RETURNS  commit <state> | duplicate <state>
         | reject schema no_batch server_changed unknown_intent stale_gen already_final not_claimed
         already_decided lease_mismatch stale_epoch lease_expired not_prepared
         not_admitted plane_key plane_header duplicate_key
         | in_doubt missing_echo
]]
--#include "include/effects.lua"
local a, malformed = begin('run.tool_complete', KEYS[6], KEYS[2], {
  server = 'str?', plane = 'str', run = 'str', intent_id = 'str', gen = 'int', executor = 'str', ok = 'bool',
  echo = 'str?', digest = 'str',
})
if not a then return malformed end
a.observation = ARGV[2]
if not is_text(a.observation) then return refused(reject('schema')) end
local id = a.intent_id
local run = effects.open_run(KEYS[1], id, 'o.p:' .. id, effects.call_fields(a))
local batch = open_batch(KEYS[2], 'clock', 'effects_open')
if elsewhere(batch, a) then return refused(reject('server_changed')) end
local at, open, stuck = intent(run, id), effects.census(run, id)
local d = outbox.complete(run, a)
if d.verb == 'duplicate' then return again(d) end
if not step('outbox.complete', d, {observation = a.observation}) then return refused() end
-- What never left has neither pair nor admission; a success of what never left is found out here.
if at.state == 'awaiting_ack' or a.ok then
  local admission = run.data['o.p:' .. id] or a.executor
  local planes = effects.open_planes(KEYS[5], a, admission)
  if not undone_by(id) then
    local pair = {lease_id = a.executor, key = id, epoch = int(run, 'conversation'), result = a.digest}
    local slots = open_row(KEYS[4], {indoubt.slot_of(run, pair)})
    if not step('indoubt.bind', indoubt.bind(run, slots, pair, now_ms(batch)), pair) then return refused() end
  end
  if a.ok then
    local body = {admission = admission, key = effects.plane_key(a, id), body = a.digest}
    body.plane = a.plane
    if not step('plane.write', plane.write(planes, run, body), body) then return refused() end
  end
  if not effects.leave_plane(run, planes, id) then return refused() end
end
effects.follow(run, batch, id, open, stuck)

-- writes
effects.write(run, a.run, KEYS[3])
return done(d)
