--[[ plane.release: end an admission, once.
WHY      capacity that comes back twice lets one too many in; a key that was never written may be admitted again.
KEYS     1 planes      evb:{live.0}:b:<batch>:plane               HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate | reject schema not_admitted
]]
--#include "plane/fence.lua"
local a, malformed = begin('plane.release', KEYS[3], KEYS[2], {admission = 'str'})
if not a then return malformed end
return answer(plane.release(open_row(KEYS[1], plane.fields), a))
