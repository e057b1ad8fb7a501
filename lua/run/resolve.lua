--[[ run.resolve: put an event `lost` in the place of a model call that will never be answered.
WHY      an announced call holds its place in the transcript until something stands there, and nothing but the outcome
         of that very call may: so a holder says that there is none. It may be its predecessor's call, or one that it
         has dropped itself.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  leases     evb:{live.0}:b:<batch>:leases             HASH
         4  transcript evb:{live.0}:b:<batch>:transcript:<run>~<conversation> LIST
         5  dead       evb:{live.0}:b:<batch>:dead               STREAM
         6  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack   2 payload    bytes
RETURNS  commit <head length> | duplicate <the same>
         | reject schema no_batch server_changed run_mismatch stale_gen lease_mismatch step_in_flight sealed forged_prefix seq_gap intent_mismatch
]]
--#include "include/calls.lua"
local a, malformed = begin('run.resolve', KEYS[6], KEYS[2], {
  server = 'str?', run = 'str', lease_id = 'str', gen = 'int1', conversation = 'int', parent = 'str', seq = 'int1',
  head = 'str',
})
if not a then return malformed end
a.payload = ARGV[2]
if not is_text(a.payload) then return refused(reject('schema')) end
local run, batch = open_row(KEYS[1]), open_batch(KEYS[2])
if elsewhere(batch, a) then return refused(reject('server_changed')) end
if has_turned(run, a) then return refused(reject('run_mismatch')) end
local floor, marker, chained, events = floor_of(batch), 'm.i:' .. number_text(a.seq), on_chain(run, a), {}
local intended = intention(run, a.seq)
local digest, call_step = (run.data[marker] or ''):match('^(%S+) (.*)$')
-- The intention of a fan-out is not resolved here: its effects are known to others, and joined.
chained.intent = intended and intended.digest == digest and digest or 'none'
if chained.intent ~= 'none' and holder_is_live(run, a, floor) then
  local open = in_flight(run, call_step)
  if open then return refused(reject('step_in_flight', open)) end
end
local d = transcript.append(run, KEYS[3], KEYS[4], chained, events, floor)
local args = chain_args(a, chained, {intent = chained.intent})
if not step('transcript.append', d, args) then
  transcript.bury(KEYS[5], d, a)
  return refused()
end
local standing = {head = head_of(run), length = int(run, 't.len')}
if d.verb == 'duplicate' then return again(duplicate(standing)) end

-- writes
transcript.write_events(KEYS[4], events)
drop(run, marker)
return done(commit(standing))
