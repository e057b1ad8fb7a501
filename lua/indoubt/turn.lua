--[[ indoubt.turn: begin the next epoch of a conversation.
WHY      what an older turn, or a preempted holder, still has under way must not bind in this one.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate | reject schema stale_epoch
]]
--#include "indoubt/fence.lua"
local a, malformed = begin('indoubt.turn', KEYS[3], KEYS[2], {run = 'str', epoch = 'int'})
if not a then return malformed end
return answer(indoubt.turn(open_row(KEYS[1], {'i.epoch'}), a))
