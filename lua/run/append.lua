--[[ run.append: add events to the live transcript, and join the writes that they tell of.
WHY      what a preempted worker still has to say must not enter its successor's transcript, and no event may tell of
         a write whose bytes are gone.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  leases     evb:{live.0}:b:<batch>:leases             HASH
         4  transcript evb:{live.0}:b:<batch>:transcript:<run>~<conversation> LIST
         5  dead       evb:{live.0}:b:<batch>:dead               STREAM
         6  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack   2… items
RETURNS  commit <head length> | duplicate <the same> | compensate <undo_id state>
         | reject schema no_batch server_changed run_mismatch stale_gen lease_mismatch sealed forged_prefix seq_gap intent_mismatch
         unknown_step unknown_receipt stale_epoch
]]
--#include "include/run.lua"
--#include "include/receipts.lua"
local a, malformed = begin('run.append', KEYS[6], KEYS[2], {
  server = 'str?', run = 'str', lease_id = 'str', gen = 'int1', conversation = 'int', epoch = 'int', parent = 'str',
  seq = 'int1', events = 'int1', receipts = 'int',
})
if not a then return malformed end
if #ARGV ~= 1 + 2 * a.events + 2 * a.receipts or a.events > 100 or a.receipts > 100 then
  return refused(reject('schema'))
end
local run = open_run(KEYS[1], 't.opens', 't.i:' .. number_text(a.seq))
local batch = open_batch(KEYS[2], 'clock', 'heartbeat_ms')
if elsewhere(batch, a) then return refused(reject('server_changed')) end
if has_turned(run, a) then return refused(reject('run_mismatch')) end
local floor = floor_of(batch)
if holder_is_live(run, a, floor) and not join_receipts(run, batch, a, 2 + 2 * a.events) then return refused() end
local chained, waiting, repeated = on_chain(run, a), {}, true
local parent = a.parent
for i = 1, a.events do
  local event = setmetatable({
    parent = parent, seq = a.seq + i - 1, head = ARGV[2 * i], payload = ARGV[2 * i + 1],
  }, {__index = chained})
  if not is_text(event.payload) then return refused(reject('schema')) end
  local d = transcript.append(run, KEYS[3], KEYS[4], event, waiting, floor)
  local args = chain_args(a, chained, {seq = event.seq, parent = parent, head = event.head})
  if not step('transcript.append', d, args) then
    transcript.bury(KEYS[5], d, setmetatable({run = a.run, lease_id = a.lease_id}, {__index = event}))
    return refused()
  end
  if d.verb == 'commit' then repeated = false end
  parent = event.head
end
local standing = {head = head_of(run), length = int(run, 't.len')}
if repeated then return again(duplicate(standing)) end

-- writes
transcript.write_events(KEYS[4], waiting)
return done(commit(standing))
