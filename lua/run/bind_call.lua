--[[ run.bind_call: bind the answer to a model call.
WHY      an answer counts when the lease that asked for it is live, its prompt is the one that was announced, its tokens
         have arrived and its place is its own: asked one after the other, each could be true and the whole be false.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  leases     evb:{live.0}:b:<batch>:leases             HASH
         4  desk_model evb:{live.0}:b:<batch>:desk:model         HASH
         5  transcript evb:{live.0}:b:<batch>:transcript:<run>~<conversation> LIST
         6  dead       evb:{live.0}:b:<batch>:dead               STREAM
         7  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack   2 payload    bytes   3… chunks
RETURNS  commit <head model_left> | duplicate <the same> | replay payload_corrupt <model_left>
         | reject schema no_batch server_changed run_mismatch after_close stale_lease unknown_request superseded prompt_hash already_bound retries_exhausted stale_gen lease_mismatch sealed forged_prefix seq_gap intent_mismatch unknown_attempt attempt_closed already_committed not_durable step_committed unknown_lease double_release
         | in_doubt missing_chunks
]]
--#include "include/calls.lua"
local a, malformed = begin('run.bind_call', KEYS[7], KEYS[2], {
  server = 'str?', run = 'str', lease_id = 'str', gen = 'int1', conversation = 'int', step = 'str', request_id = 'str',
  attempt = 'int1', desk = 'str', desk_lease = 'str', desk_gen = 'int', prompt_hash = 'str', parent = 'str',
  seq = 'int1', intent = 'str', payload_ok = 'bool', digest = 'str', head = 'str', last_seq = 'int', chunks = 'int',
  estimated = 'int?',
})
if not a then return malformed end
if #ARGV ~= 1 + 1 + 3 * a.chunks or a.desk ~= 'model'
    or not is_call(a, a.run .. '~' .. number_text(a.conversation) .. '.') then
  return refused(reject('schema'))
end
a.payload = ARGV[2]
local chunks = read_chunks(a, 3)
if not chunks or (a.payload_ok and (not is_text(a.payload) or a.last_seq == 0)) then
  return refused(reject('schema'))
end
local run, batch = open_row(KEYS[1]), open_batch(KEYS[2], 'estimated', unpack(ledger.totals))
if elsewhere(batch, a) then return refused(reject('server_changed')) end
bill(run, batch, chunks, a.estimated)
local desk = open_desk(KEYS[4], 'l:' .. a.desk_lease)
if is_mixed_up(run, desk, a) then return refused(reject('schema')) end
local turned, floor = has_turned(run, a), floor_of(batch)
if not turned and past(run, a.desk_lease) and is_bound_by(run, a) and run.data['c.d:' .. a.step] == a.digest
    and head_at(run, KEYS[5], a.seq) == a.head then
  return again(duplicate({head = a.head, model_left = int(run, 'c.model')}))
end
if turned then return refused(reject('run_mismatch')) end
local bound = completion.bind(run, batch, a, floor)
if bound.verb == 'replay' then
  step('completion.bind', bound)
  give_up_answer(run, batch, desk, a)
  return refused_all_standing(bound, 'completion.bind')
end
if not step('completion.bind', bound) then return refused() end
local events, chained = {}, on_chain(run, a)
local appended = transcript.append(run, KEYS[3], KEYS[5], chained, events, floor)
if not step('transcript.append', appended, chain_args(a, chained)) then
  transcript.bury(KEYS[6], appended, a)
  return refused()
end
if not step('ledger.done', ledger.done(run, batch, a)) then return refused() end
if not give_answer(run, desk, a) then return refused() end

-- writes
transcript.write_events(KEYS[5], events)
drop(run, 'm.i:' .. number_text(a.seq))
return done(commit({head = a.head, model_left = int(run, 'c.model')}))
