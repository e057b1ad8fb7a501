--[[ run.tool_claim: hand an effect's message to one executor.
WHY      the message may come twice, or to a second worker while the first is still calling. What has not left is
         called by the newcomer; what may have landed is called by nobody, and undone when its time is over.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  tools      evb:{live.0}:b:<batch>:tools              STREAM
         4  planes     evb:{live.0}:b:<batch>:plane              HASH
         5  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <intent gen tool args undo> | duplicate <the same> | compensate <state undo_id>
         | reject schema no_batch server_changed not_owner duplicate_entry ended poison stuck executor_reused
         | in_doubt awaiting_ack
]]
--#include "include/effects.lua"
local a, malformed = begin('run.tool_claim', KEYS[5], KEYS[2], {
  server = 'str?', run = 'str', intent_id = 'str', entry = 'str', executor = 'str', consumer = 'str',
})
if not a then return malformed end
if not is_entry_id(a.entry) then return refused(reject('schema')) end
local id = a.intent_id
local run = effects.open_run(
  KEYS[1], id, 'o.t:' .. id, 'o.n:' .. id, 'o.a:' .. (undone_by(id) or id), claimed_by(id, a.executor)
)
local batch = open_batch(KEYS[2], 'clock', 'ack_bound_ms', 'inverses', 'max_deliveries', 'effects_open')
if elsewhere(batch, a) then return refused(reject('server_changed')) end
local at = intent(run, id)
local function licence()
  local known = job(run, id)
  return {intent = id, gen = at.gen, tool = known.tool, args = known.args, undo = undone_by(id)}
end
if at and at.state == 'executing' and at.executor == a.executor then return again(duplicate(licence())) end
if not owns(KEYS[3], 'worker', a.entry, a.consumer) then return refused(reject('not_owner')) end
-- The row names none for an effect that has ended, or is being undone: whatever comes then is a second message.
if run.data['o.e:' .. id] ~= a.entry then
  acknowledge(KEYS[3], 'worker', a.entry)
  return refused(reject('duplicate_entry'))
end
local function given_up(d)
  if not effects.give_up(run, batch, id, a.executor, d.reason) then return refused() end
  effects.write(run, a.run, KEYS[3])
  return done(d)
end
if at.state == 'awaiting_ack' then
  local d = effects.recover(run, batch, open_row(KEYS[4], plane.fields), a, now_ms(batch))
  if d.verb == 'in_doubt' then return refused() end
  effects.write(run, a.run, KEYS[3])
  return done(d)
end
if is_over(run) and not undone_by(id) then return given_up(reject('ended')) end
-- A tool that kills whoever calls it would go from one to the next for ever.
if int(run, 'o.n:' .. id) >= int(batch, 'max_deliveries') then return given_up(reject('poison')) end
if at.state == 'executing' then step('outbox.recover', outbox.recover(run, batch, a)) end
local claim = {gen = at.gen}
if not step('outbox.claim', outbox.claim(run, {intent_id = id, gen = at.gen, executor = a.executor}), claim) then
  return refused()
end

-- writes
add(run, 'o.n:' .. id, 1)
return done(commit(licence()))
