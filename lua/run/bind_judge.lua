--[[ run.bind_judge: account for the answer of the judge's model.
WHY      what it says is judged by the scorer, and signed with the score; that it was paid for, and that its place is
         free again, is settled here.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  desk_judge evb:{live.0}:b:<batch>:desk:judge         HASH
         4  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack   2… chunks
RETURNS  commit | duplicate | replay payload_corrupt | in_doubt missing_chunks
         | reject schema no_batch server_changed stale_lease unknown_attempt attempt_closed already_committed not_durable stale_gen step_committed unknown_lease double_release
]]
--#include "include/calls.lua"
local a, malformed = begin('run.bind_judge', KEYS[4], KEYS[2], {
  server = 'str?', run = 'str', lease_id = 'str', gen = 'int1', step = 'str', request_id = 'str', attempt = 'int1',
  desk = 'str', desk_lease = 'str', desk_gen = 'int', payload_ok = 'bool', digest = 'str', last_seq = 'int',
  chunks = 'int', estimated = 'int?',
})
if not a then return malformed end
if #ARGV ~= 1 + 3 * a.chunks or a.desk ~= 'judge' or not is_call(a, a.run .. '~j' .. number_text(a.gen) .. '.') then
  return refused(reject('schema'))
end
local chunks = read_chunks(a, 2)
if not chunks or (a.payload_ok and a.last_seq == 0) then return refused(reject('schema')) end
local run, batch = open_row(KEYS[1]), open_batch(KEYS[2], 'estimated', unpack(ledger.totals))
if elsewhere(batch, a) then return refused(reject('server_changed')) end
bill(run, batch, chunks, a.estimated)
local desk = open_desk(KEYS[3], 'l:' .. a.desk_lease)
if is_mixed_up(run, desk, a) then return refused(reject('schema')) end
if past(run, a.desk_lease) and done_by(run, a.step) == a.desk_lease
    and run.data['d.what:' .. a.step] == a.digest then
  return again(duplicate())
end
if not scorer_is_live(run, a, floor_of(batch)) then return refused(reject('stale_lease')) end
if not a.payload_ok then
  local corrupt = replay('payload_corrupt')
  step(call.name, corrupt)
  give_up_answer(run, batch, desk, a)
  return refused_all_standing(corrupt, call.name)
end
if not step('ledger.done', ledger.done(run, batch, a)) then return refused() end
if not give_answer(run, desk, a) then return refused() end
return done(commit())
