--[[ indoubt.bind: decide a call by its result.
WHY      a success that comes late counts once, or not at all.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 slots       evb:{live.0}:b:<batch>:slots               HASH
         3 batch       evb:{live.0}:b:<batch>:batch               HASH
         4 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate
         | reject schema already_decided lease_mismatch stale_epoch lease_expired not_prepared
]]
--#include "indoubt/fence.lua"
--#include "include/clock.lua"
local a, malformed = begin('indoubt.bind', KEYS[4], KEYS[3], {run = 'str', lease_id = 'str', key = 'str', epoch = 'int', result = 'str'})
if not a then return malformed end
local run = open_row(KEYS[1], indoubt.fields(a))
local slots = open_row(KEYS[2], {indoubt.slot_of(run, a)})
return answer(indoubt.bind(run, slots, a, now_ms(open_row(KEYS[3], {'clock'}))))
