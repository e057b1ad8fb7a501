--[[ join.result: join one attempt to its case.
WHY      a slow twin's result, or one of another window, must neither count nor spend a second time.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <state>
         | reject schema unknown_case late window_mismatch duplicate_attempt unknown_attempt window_exhausted
]]
--#include "join/fence.lua"
local a, malformed = begin('join.result', KEYS[3], KEYS[2], {case = 'str', attempt = 'str', window = 'str', tokens = 'int', ok = 'bool'})
if not a then return malformed end
return answer(join.result(open_row(KEYS[1], join.fields(a.case)), a))
