--[[ histogram.score: accept one score.
WHY      a late, foreign or second score must not move a bin.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate
         | reject schema after_close unknown_run abandoned stale_epoch digest_mismatch score_conflict
]]
--#include "histogram/fence.lua"
local a, malformed = begin('histogram.score', KEYS[3], KEYS[2], {run = 'str', digest = 'str', epoch = 'int', bin = 'str', value = 'str'})
if not a then return malformed end
local batch = open_row(KEYS[2], {'bin:' .. a.bin, unpack(histogram.fields)})
return answer(histogram.score(open_row(KEYS[1]), batch, a))
