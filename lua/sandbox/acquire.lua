--[[ sandbox.acquire: begin a life of a workspace.
WHY      a replica that comes back says which writes it still has; what it does not prove is lost for good.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <epoch kept> | duplicate <the same> | reject schema command_reused unknown_index
]]
--#include "sandbox/fence.lua"
--#include "include/clock.lua"
local a, malformed = begin('sandbox.acquire', KEYS[3], KEYS[2], {workspace = 'str', known_index = 'int', command = 'str'})
if not a then return malformed end
local batch = open_row(KEYS[2], sandbox.fields)
return answer(sandbox.acquire(open_row(KEYS[1]), batch, a, now_ms(batch)))
