--[[ histogram.abandon: end a run as a named hole.
WHY      what is missing must say so, or the denominator lies.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate | reject schema after_close unknown_run abandoned already_scored stale_epoch
]]
--#include "histogram/fence.lua"
local a, malformed = begin('histogram.abandon', KEYS[3], KEYS[2], {run = 'str', epoch = 'int', why = 'str'})
if not a then return malformed end
return answer(histogram.abandon(open_row(KEYS[1]), open_row(KEYS[2], histogram.fields), a))
