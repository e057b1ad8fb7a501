--[[ histogram.pass_rate: read the number.
WHY      an open histogram has none, and neither has one below its quorum.
KEYS     1 batch       evb:{live.0}:b:<batch>:batch               HASH
         2 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <passed accepted holes snapshot_id> | reject schema open_histogram below_quorum
]]
--#include "histogram/fence.lua"
local a, malformed = begin('histogram.pass_rate', KEYS[2], KEYS[1], {passing = 'str'})
if not a then return malformed end
local batch = open_row(KEYS[1], {'bin:' .. a.passing, unpack(histogram.fields)})
return answer(histogram.pass_rate(batch, a.passing))
