--[[ plane.write: write the admitted key, once.
WHY      a stalled worker wakes up with a live key in its hand: what counts is what its admission recorded.
KEYS     1 planes      evb:{live.0}:b:<batch>:plane               HASH
         2 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         3 batch       evb:{live.0}:b:<batch>:batch               HASH
         4 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | reject schema not_admitted plane_key plane_header duplicate_key
]]
--#include "plane/fence.lua"
local a, malformed = begin('plane.write', KEYS[4], KEYS[3], {admission = 'str', key = 'str', plane = 'str', body = 'str'})
if not a then return malformed end
return answer(plane.write(open_row(KEYS[1], plane.fields), open_row(KEYS[2]), a))
