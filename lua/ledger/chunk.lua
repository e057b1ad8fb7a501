--[[ ledger.chunk: count one chunk of an attempt's stream.
WHY      spend that is counted at a step's end is lost with every stream that breaks.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <billed durable watermark> | duplicate <the same> | reject schema unknown_attempt attempt_closed
]]
--#include "ledger/fence.lua"
local a, malformed = begin('ledger.chunk', KEYS[3], KEYS[2], {
  run = 'str', step = 'str', attempt = 'int1', seq = 'int1', tokens = 'int', durable = 'bool',
})
if not a then return malformed end
local run = open_row(KEYS[1], {'l.a:' .. a.step .. '#' .. number_text(a.attempt)})
local d = ledger.chunk(run, open_row(KEYS[2], ledger.totals), a, put)
if d.verb == 'duplicate' then return done(d) end -- the chunk may have turned durable
return answer(d)
