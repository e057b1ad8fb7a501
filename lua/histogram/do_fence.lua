--[[ histogram.fence: open a scoring epoch under the sealed digest.
WHY      a restarted scorer must bump the epoch before it may speak.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit
         | reject schema after_close unknown_run epoch_not_newer already_scored abandoned digest_mismatch backpressure
]]
--#include "histogram/fence.lua"
local a, malformed = begin('histogram.fence', KEYS[3], KEYS[2], {run = 'str', epoch = 'int', digest = 'str'})
if not a then return malformed end
return answer(histogram.fence(open_row(KEYS[1]), open_row(KEYS[2], histogram.fields), a))
