--[[ ledger.admit: reserve what an attempt may spend.
WHY      two attempts that each fit into the budget may not fit together.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | reject schema already_committed attempt_reused over_budget
]]
--#include "ledger/fence.lua"
local a, malformed = begin('ledger.admit', KEYS[3], KEYS[2], {
  run = 'str', step = 'str', attempt = 'int1', estimate = 'int',
})
if not a then return malformed end
local run = open_row(KEYS[1], {'l.a:' .. a.step .. '#' .. number_text(a.attempt)})
return answer(ledger.admit(run, open_row(KEYS[2], ledger.totals), a))
