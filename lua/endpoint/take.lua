--[[ endpoint.take: may one request leave for an endpoint now, as far as all workers together are allowed?
WHY      each worker by itself would keep to the limit, and all of them together would pass it many times.
KEYS     1 endpoint  evb:{live.0}:endpoint:<endpoint>          HASH
ARGV     1 request   µs of refill that one request costs; 0: requests are not bounded
         2 tokens    µs of refill that its tokens cost; 0: tokens are not bounded
         3 depth     µs of refill that a bucket holds
RETURNS  commit | replay not_yet <wait> | reject schema
]]
--#include "include/bucket.lua"
local SPREAD = 2000000 -- µs: those who wait come back one after another, but none later than this for that reason
local BESIDE_NOTHING = 50000 -- µs between two who waited for a pause only, where no rate says how many may leave
local request, tokens, depth = whole(ARGV[1]), whole(ARGV[2]), whole(ARGV[3])
if not (request and tokens and depth) then return bucket.malformed('endpoint.take') end
local row = open_row(KEYS[1])
local now = bucket.now(row)
local wait = math.max(
  int(row, 'pause') - now,
  bucket.wait(row, 'requests', now, request, depth),
  bucket.wait(row, 'tokens', now, tokens, depth)
)
if wait <= 0 then
  bucket.take(row, 'requests', now, request)
  bucket.take(row, 'tokens', now, tokens)
  return bucket.answer('endpoint.take', row, commit())
end
-- Nothing is promised: who comes first when there is room again, leaves. But a hundred workers that were all told the
-- same time would all come at once, and ninety-nine in vain.
local first, step = now + wait, math.max(request, tokens)
if step == 0 then step = BESIDE_NOTHING end
local turn = math.max(int(row, 'turn') + step, first)
if turn > first + SPREAD then turn = first end
put_time(row, 'turn', turn)
return bucket.answer('endpoint.take', row, replay('not_yet', {wait = turn - now}))
