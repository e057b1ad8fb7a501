--[[ endpoint.retry: spend one retry of those that all workers share.
WHY      an endpoint that fails is asked again by everyone at once: without a common budget, retries are what keeps it
         down, and each is paid for.
KEYS     1 endpoint  evb:{live.0}:endpoint:<endpoint>          HASH
ARGV     1 cost      µs of refill that one retry costs
         2 depth     µs of refill that the bucket holds
RETURNS  commit | reject no_retries | reject schema
]]
--#include "include/bucket.lua"
local cost, depth = whole(ARGV[1]), whole(ARGV[2])
if not (cost and depth) or cost == 0 or cost > depth then return bucket.malformed('endpoint.retry') end
local row = open_row(KEYS[1])
local now = bucket.now(row)
if bucket.wait(row, 'retries', now, cost, depth) > 0 then
  return bucket.answer('endpoint.retry', row, reject('no_retries'))
end
bucket.take(row, 'retries', now, cost)
return bucket.answer('endpoint.retry', row, commit())
