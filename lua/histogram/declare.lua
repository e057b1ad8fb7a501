--[[ histogram.declare: name a run that the batch intends.
WHY      a run that nobody declared can neither be scored nor be missing.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
         4 index       evb:{live.0}:b:<batch>:index               LIST
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate | reject schema
]]
--#include "histogram/fence.lua"
local a, malformed = begin('histogram.declare', KEYS[3], KEYS[2], {run = 'str'})
if not a then return malformed end
local run = open_row(KEYS[1])
if run.data.state then return again(duplicate()) end
put(run, 'state', 'declared')

-- writes
redis.call('RPUSH', KEYS[4], a.run)
return answer(commit())
