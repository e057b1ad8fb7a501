--[[ completion.close: let nothing be bound any more.
WHY      a completion that comes behind the watermark would change what the gate has read.
KEYS     1 batch       evb:{live.0}:b:<batch>:batch               HASH
         2 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate | reject schema
]]
--#include "completion/fence.lua"
local a, malformed = begin('completion.close', KEYS[2], KEYS[1], {})
if not a then return malformed end
return answer(completion.close(open_row(KEYS[1], {'watermark'})))
