--[[ run.append: add events to the live transcript.
WHY      what a preempted worker still has to say must not enter its successor's transcript.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  leases     evb:{live.0}:b:<batch>:leases             HASH
         4  transcript evb:{live.0}:b:<batch>:transcript:<run>   STREAM
         5  dead       evb:{live.0}:b:<batch>:dead               STREAM
         6  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack   2… events
RETURNS  commit <head length> | duplicate <the same>
         | reject schema server_changed run_mismatch stale_gen lease_mismatch sealed forged_prefix seq_gap intent_mismatch
]]
--#include "include/run.lua"
local a, malformed = begin('run.append', KEYS[6], KEYS[2], {
  server = 'str?', run = 'str', lease_id = 'str', gen = 'int1', parent = 'str', seq = 'int1', events = 'int1',
})
if not a then return malformed end
if #ARGV ~= 1 + 2 * a.events or a.events > 100 then return refused(reject('schema')) end
local run, batch, waiting, repeated = open_row(KEYS[1]), open_batch(KEYS[2]), {}, true
if elsewhere(batch, a) then return refused(reject('server_changed')) end
local parent = a.parent
for i = 1, a.events do
  local event = {
    run = a.run, lease_id = a.lease_id, gen = a.gen, parent = parent, seq = a.seq + i - 1,
    head = ARGV[2 * i], payload = ARGV[2 * i + 1],
  }
  if not is_text(event.payload) then return refused(reject('schema')) end
  local d = transcript.append(run, KEYS[3], KEYS[4], event, waiting, floor_of(batch))
  if not step('transcript.append', d, {seq = event.seq, parent = parent, head = event.head}) then
    transcript.bury(KEYS[5], d, event)
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
