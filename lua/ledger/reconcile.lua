--[[ ledger.reconcile: set what a closed attempt cost to what the gateway billed.
WHY      tokens that were produced and never arrived are spent too.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate | in_doubt attempt_open
         | reject schema unknown_attempt already_reconciled below_durable
]]
--#include "ledger/fence.lua"
local a, malformed = begin('ledger.reconcile', KEYS[3], KEYS[2], {
  run = 'str', step = 'str', attempt = 'int1', gateway_billed = 'int',
})
if not a then return malformed end
local run = open_row(KEYS[1], {'l.a:' .. a.step .. '#' .. number_text(a.attempt)})
return answer(ledger.reconcile(run, open_row(KEYS[2], ledger.totals), a))
