--[[ indoubt.reserve: take a slot for one call.
WHY      an answer that was lost must cost neither a second slot nor a second call.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 slots       evb:{live.0}:b:<batch>:slots               HASH
         3 batch       evb:{live.0}:b:<batch>:batch               HASH
         4 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <lease_id slot> | duplicate <the same>
         | reject schema already_decided stale_epoch slot_busy | in_doubt recover_first
]]
--#include "indoubt/fence.lua"
--#include "include/clock.lua"
local a, malformed = begin('indoubt.reserve', KEYS[4], KEYS[3], {run = 'str', slot = 'str', key = 'str', epoch = 'int', ttl_ms = 'int1', lease_id = 'str'})
if not a then return malformed end
local run, slots = open_row(KEYS[1], indoubt.fields(a)), open_row(KEYS[2], {a.slot})
return answer(indoubt.reserve(run, slots, a, now_ms(open_row(KEYS[3], {'clock'}))))
