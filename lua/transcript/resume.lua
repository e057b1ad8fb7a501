--[[ transcript.resume: ask whether a lease is still the live one.
WHY      a holder that slept must drop its buffer, not flush it.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <head length> | reject schema stale
]]
--#include "transcript/fence.lua"
local a, malformed = begin('transcript.resume', KEYS[3], KEYS[2], {run = 'str', lease_id = 'str', gen = 'int'})
if not a then return malformed end
return answer(transcript.resume(open_row(KEYS[1]), a))
