--[[ ledger.abandon: give up an attempt that is not wanted any more.
WHY      what it may still have spent is no longer reserved; what it did spend stays.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate | reject schema unknown_attempt attempt_closed
]]
--#include "ledger/fence.lua"
local a, malformed = begin('ledger.abandon', KEYS[3], KEYS[2], {run = 'str', step = 'str', attempt = 'int1'})
if not a then return malformed end
local run = open_row(KEYS[1], {'l.a:' .. a.step .. '#' .. number_text(a.attempt)})
return answer(ledger.abandon(run, open_row(KEYS[2], ledger.totals), a))
