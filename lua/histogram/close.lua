--[[ histogram.close: close the histogram over one snapshot.
WHY      a number exists only over a set that can no longer move.
KEYS     1 batch       evb:{live.0}:b:<batch>:batch               HASH
         2 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <snapshot_id accepted> | duplicate <the same> | reject schema below_quorum
         | in_doubt not_drained in_flight
]]
--#include "histogram/fence.lua"
local a, malformed = begin('histogram.close', KEYS[2], KEYS[1], {snapshot_id = 'str', accepted = 'int', holes = 'int'})
if not a then return malformed end
return answer(histogram.close(open_row(KEYS[1], histogram.fields), a))
