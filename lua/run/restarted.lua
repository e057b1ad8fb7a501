--[[ run.restarted: void every token that another life of the server granted.
WHY      a server that was restarted, or a replica that was promoted, may have lost what it answered last: that somebody
         was fenced, and which generations were given out. So all of them are void from here on, and numbered past.
KEYS     1  batch      evb:{live.0}:b:<batch>:batch              HASH
         2  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <floor> | duplicate <floor> | reject schema no_batch
]]
--#include "include/run.lua"
--#include "include/clock.lua"
local a, malformed = begin('run.restarted', KEYS[2], KEYS[1], {
  server = 'str',
})
if not a then return malformed end
local batch = open_batch(KEYS[1])
if batch.data.server == a.server then return again(duplicate({floor = floor_of(batch)})) end
-- The number itself may have been raised and lost before, so the clock takes part: it is ahead of any counter of ours.
-- A clock that was set back meanwhile costs nothing: the random ids are compared too.
put(batch, 'floor', math.max(floor_of(batch) + 1, now_ms(batch)))
put(batch, 'server', a.server)
if batch.data.lives then -- the history names each by its number
  add(batch, 'lives', 1)
  put(batch, 'life:' .. batch.data.lives, a.server)
end
return done(commit({floor = floor_of(batch)}))
