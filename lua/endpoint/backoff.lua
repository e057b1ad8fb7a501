--[[ endpoint.backoff: the endpoint asked to be left in peace; nobody's request leaves before.
WHY      the answer 429 reaches one worker, and is meant for all.
KEYS     1 endpoint  evb:{live.0}:endpoint:<endpoint>          HASH
ARGV     1 pause     µs from now
RETURNS  commit | reject schema
]]
--#include "include/bucket.lua"
local pause = whole(ARGV[1])
if not pause then return bucket.malformed('endpoint.backoff') end
local row = open_row(KEYS[1])
local now = bucket.now(row)
-- A shorter one that comes later does not end a longer one.
put_time(row, 'pause', math.max(int(row, 'pause'), now + pause))
return bucket.answer('endpoint.backoff', row, commit())
