--[[ run.turn: give the conversation up and begin the next one.
WHY      what the old conversation did outside would stand beside the new one, which does not know of it. So it is
         undone first, or the new one does not begin; and once begun, the turn is ended by whoever holds the run.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  leases     evb:{live.0}:b:<batch>:leases             HASH
         4  transcript evb:{live.0}:b:<batch>:transcript:<run>~<conversation> LIST
         5  tools      evb:{live.0}:b:<batch>:tools              STREAM
         6  planes     evb:{live.0}:b:<batch>:plane              HASH
         7  undo_live  evb:{live.0}:b:<batch>:undo:live          STREAM
         8  undo_shadow evb:{live.0}:b:<batch>:undo:shadow       STREAM
         9  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack   2 payload    bytes
RETURNS  commit <conversation head length> | duplicate <the same>
         | reject schema no_batch server_changed run_mismatch stale_lease stale_gen lease_mismatch sealed forged_prefix stuck
         not_admitted plane_key plane_header not_written executor_reused stale_epoch
         | in_doubt in_flight
]]
--#include "include/effects.lua"
local MOST = 100 -- effects that one call gives up: the rest is the next one's

-- `transcript` is the next conversation's: it is where the payload goes.
local a, malformed = begin('run.turn', KEYS[9], KEYS[2], {
  server = 'str?', plane = 'str', run = 'str', lease_id = 'str', gen = 'int1', conversation = 'int', abandoned = 'str',
  head = 'str',
})
if not a then return malformed end
a.payload = ARGV[2]
if not is_text(a.payload) then return refused(reject('schema')) end
local run, batch = open_row(KEYS[1]), open_batch(KEYS[2], 'clock', 'inverses', 'effects_open')
if elsewhere(batch, a) then return refused(reject('server_changed')) end
local floor, following = floor_of(batch), a.conversation + 1
local begun = {conversation = following, head = a.head, length = 1}
if int(run, 'conversation') == following and holder_is_live(run, a, floor) and head_at(run, KEYS[4], 1) == a.head then
  return again(duplicate(begun))
end
local refusal = not_holder(run, batch, KEYS[3], a)
if refusal then return refused(refusal) end
if a.abandoned ~= head_of(run) then return refused(reject('forged_prefix')) end
keep(run, 'turning', '1')

-- The conversation's intents, the latest first.
local chain, found = chain_of(run, a.run), {}
for field in pairs(run.data) do
  local id = field:sub(1, #chain + 5) == 'o.i:' .. chain .. '.' and field:sub(5)
  if id and not undone_by(id) then
    local n, i = id:match('%.(%d+)%.(%d+)$')
    found[#found + 1] = {id = id, n = tonumber(n or 0), i = tonumber(i or 0)}
  end
end
table.sort(found, function(one, other)
  if one.n ~= other.n then return one.n > other.n end
  if one.i ~= other.i then return one.i > other.i end
  return one.id > other.id
end)

local planes, undos, changed, waits = open_row(KEYS[6], plane.fields), {}, 0, false
local function revoke(id)
  local named, open, stuck = {intent_id = id, gen = intent(run, id).gen}, effects.census(run, id)
  if not step('outbox.revoke', outbox.revoke(run, batch, named), named) then return false end
  local undo = {admission = run.data['o.p:' .. id], key = effects.plane_key(a, id), plane = a.plane}
  if not step('plane.undo', plane.undo(planes, run, undo, undos), undo) then return false end
  effects.follow(run, batch, id, open, stuck)
  return true
end
for _, one in ipairs(found) do
  local state = intent(run, one.id).state
  local never_left = state == 'queued' or state == 'executing'
  if state == 'stuck' then return refused(reject('stuck')) end
  if state == 'awaiting_ack' or state == 'compensating' then waits = true end
  if (never_left or state == 'committed') and changed == MOST then
    waits = true
  elseif never_left then
    changed = changed + 1
    if not effects.give_up(run, batch, one.id, a.lease_id, 'turned') then return refused() end
  elseif state == 'committed' then
    changed, waits = changed + 1, true
    if not revoke(one.id) then return refused() end
  end
end
if waits then
  plane.queue_undos({live = KEYS[7], shadow = KEYS[8]}, undos)
  effects.write(run, a.run, KEYS[5])
  return done(in_doubt('in_flight'))
end

-- Nothing of the old conversation stands, or will. The new chain is another run to fence 7, under a lease of its own
-- name and of the same generation.
local old = {run = chain, gen = a.gen}
if not step('transcript.fence', transcript.fence(run, old, floor), old) then return refused() end
local epoch = {epoch = following}
if not step('indoubt.turn', indoubt.turn(run, epoch), epoch) then return refused() end
expire_windows(run)
local gone = {'t.head', 't.len', 't.opens', 'turning'}
for field in pairs(run.data) do
  if field:match('^[tm]%.i:') then gone[#gone + 1] = field end
end
for _, field in ipairs(gone) do drop(run, field) end
put(run, 'conversation', following)
local lease = {run = chain_of(run, a.run), lease_id = a.lease_id .. '~' .. number_text(following)}
put(run, 't.lease', lease.lease_id)
put(open_row(KEYS[3], {lease.lease_id}), lease.lease_id, lease.run)
step('transcript.lease', commit(standing(run)), lease)
local events = {}
local first = {run = lease.run, lease_id = lease.lease_id, parent = EMPTY_HEAD, seq = 1}
local d = transcript.append(run, KEYS[3], KEYS[4], setmetatable(first, {__index = a}), events, floor)
setmetatable(first, nil)
if not step('transcript.append', d, first) then return refused() end

-- writes
effects.write(run, a.run, KEYS[5])
transcript.write_events(KEYS[4], events)
return done(commit(begun))
