--[[ histogram.drain: say that no new run will come.
WHY      closing at the quorum alone would keep the fast runs and drop the slow.
KEYS     1 batch       evb:{live.0}:b:<batch>:batch               HASH
         2 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate | reject schema
]]
--#include "histogram/fence.lua"
local a, malformed = begin('histogram.drain', KEYS[2], KEYS[1], {})
if not a then return malformed end
return answer(histogram.drain(open_row(KEYS[1], histogram.fields)))
