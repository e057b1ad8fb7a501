--[[ plane.undo: queue the inverse of a written key on its own plane.
WHY      the timeout of a shadow run must not undo what is live.
KEYS     1 planes      evb:{live.0}:b:<batch>:plane               HASH
         2 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         3 undo_live   evb:{live.0}:b:<batch>:undo:live           STREAM
         4 undo_shadow evb:{live.0}:b:<batch>:undo:shadow         STREAM
         5 batch       evb:{live.0}:b:<batch>:batch               HASH
         6 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate | reject schema not_admitted plane_key plane_header not_written
]]
--#include "plane/fence.lua"
local a, malformed = begin('plane.undo', KEYS[6], KEYS[5], {admission = 'str', key = 'str', plane = 'str'})
if not a then return malformed end
local undos = {}
local d = plane.undo(open_row(KEYS[1], plane.fields), open_row(KEYS[2]), a, undos)
plane.queue_undos({live = KEYS[3], shadow = KEYS[4]}, undos)
return answer(d)
