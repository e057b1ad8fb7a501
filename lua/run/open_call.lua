--[[ run.open_call: announce a model call before its prompt leaves.
WHY      a prompt that left under a lease, a place or a budget that were gone would be paid for and answer nobody; and
         a death behind it must leave a name, not a gap. So all four are asked together, and two workers that each
         fit into the budget cannot pass it together.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  leases     evb:{live.0}:b:<batch>:leases             HASH
         4  requests   evb:{live.0}:b:<batch>:requests           HASH
         5  desk_model evb:{live.0}:b:<batch>:desk:model         HASH
         6  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <desk_gen> | duplicate <desk_gen>
         | reject schema no_batch server_changed run_mismatch stale_lease turning request_reused already_bound retries_exhausted stale_gen lease_mismatch sealed intent_conflict forged_prefix seq_gap lease_reused step_committed step_in_flight bound_full already_committed attempt_reused over_budget
         | in_doubt dangling
]]
--#include "include/calls.lua"
local a, malformed = begin('run.open_call', KEYS[6], KEYS[2], {
  server = 'str?', run = 'str', lease_id = 'str', gen = 'int1', conversation = 'int', step = 'str', request_id = 'str',
  attempt = 'int1', desk = 'str', desk_lease = 'str', prompt_hash = 'str', estimate = 'int', parent = 'str',
  seq = 'int1', intent = 'str',
})
if not a then return malformed end
if a.desk ~= 'model' or not is_call(a, a.run .. '~' .. number_text(a.conversation) .. '.') then
  return refused(reject('schema'))
end
local run, batch = open_row(KEYS[1]), open_batch(KEYS[2], unpack(ledger.totals))
if elsewhere(batch, a) then return refused(reject('server_changed')) end
local desk = open_desk(KEYS[5], 'l:' .. a.desk_lease)

-- Sent again when it had been bound already: the answer that was lost on the way is worth nothing any more.
local gone = past(run, a.desk_lease)
if gone and gone.step == a.step and is_bound_by(run, a) then return again(duplicate({desk_gen = gone.gen})) end
if has_turned(run, a) then return refused(reject('run_mismatch')) end
local floor = floor_of(batch)
local requests = open_row(KEYS[4], {a.request_id})
local opened = completion.open(run, requests, a, floor)
if opened.reason == 'stale_lease' then return refused(opened, 'completion.open') end
local place = held(desk, a.desk_lease)
if opened.verb == 'duplicate' and place and place.state == 'live' and not is_mixed_up(run, desk, a) then
  return again(duplicate({desk_gen = place.gen}))
end
if run.data.turning then return refused(reject('turning')) end
if not step('completion.open', opened) then return refused() end
local chained = on_chain(run, a)
chained.digest = a.intent
local intended = transcript.intend(run, KEYS[3], chained, floor)
if not step('transcript.intend', intended, chain_args(a, chained, {digest = a.intent})) then return refused() end
local desk_gen = take_place(run, batch, desk, a)
if not desk_gen then return refused() end

-- writes
put(run, 'm.i:' .. number_text(a.seq), a.intent .. ' ' .. a.step)
return done(commit({desk_gen = desk_gen}))
