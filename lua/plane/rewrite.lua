--[[ plane.rewrite: mint the shadow key of a step.
WHY      a shadow run that is handed a live key writes live: so there is one way to a key, and it leads to shadow.
KEYS     1 batch       evb:{live.0}:b:<batch>:batch               HASH
         2 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <key> | reject schema
]]
--#include "plane/fence.lua"
local a, malformed = begin('plane.rewrite', KEYS[2], KEYS[1], {run = 'str', step = 'str'})
if not a then return malformed end
return answer(plane.rewrite(a))
