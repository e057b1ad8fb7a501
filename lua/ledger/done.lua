--[[ ledger.done: commit a step with one attempt.
WHY      an end that overtakes a chunk, or a second attempt, would commit what is not there or is there twice.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <state> | duplicate <state> | in_doubt missing_chunks
         | reject schema unknown_attempt attempt_closed already_committed not_durable
]]
--#include "ledger/fence.lua"
local a, malformed = begin('ledger.done', KEYS[3], KEYS[2], {
  run = 'str', step = 'str', attempt = 'int1', last_seq = 'int1',
})
if not a then return malformed end
local run = open_row(KEYS[1], {'l.a:' .. a.step .. '#' .. number_text(a.attempt)})
return answer(ledger.done(run, open_row(KEYS[2], ledger.totals), a))
