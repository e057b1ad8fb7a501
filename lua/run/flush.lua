--[[ run.flush: bill chunks while an answer arrives.
WHY      spend that is counted when the answer is complete is lost with every stream that breaks, and with every worker.
         It needs no live lease: what was delivered was spent, whoever holds the run by now.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack   2… chunks
RETURNS  commit <billed durable watermark> | duplicate <the same>
         | reject schema no_batch server_changed unknown_attempt attempt_closed
]]
--#include "include/calls.lua"
local a, malformed = begin('run.flush', KEYS[3], KEYS[2], {
  server = 'str?', run = 'str', step = 'str', attempt = 'int1', chunks = 'int1',
})
if not a then return malformed end
if #ARGV ~= 1 + 3 * a.chunks or not is_step_of(a, a.run .. '~') then return refused(reject('schema')) end
local chunks = read_chunks(a, 2)
if not chunks then return refused(reject('schema')) end
local run, batch = open_row(KEYS[1]), open_batch(KEYS[2], unpack(ledger.totals))
if elsewhere(batch, a) then return refused(reject('server_changed')) end
local said = bill(run, batch, chunks)

-- writes
write_kept()
local is_refused = said.verb == 'reject'
record(call.kept, is_refused)
return reply(said, is_refused and 'ledger.chunk' or call.name)
