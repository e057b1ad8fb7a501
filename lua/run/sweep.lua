--[[ run.sweep: give back the places of leases that expired and were never released.
WHY      a place that is never given back closes the desk for ever.
KEYS     1  batch      evb:{live.0}:b:<batch>:batch              HASH
         2  desk       evb:{live.0}:b:<batch>:desk:runs          HASH
         3  history    evb:{live.0}:b:<batch>:history            STREAM
         4… rows       evb:{live.0}:b:<batch>:run:<run>          HASH
ARGV     1 envelope    msgpack   2… items
RETURNS  commit <freed> | reject schema
]]
--#include "include/run.lua"
--#include "include/clock.lua"
local a, malformed = begin('run.sweep', KEYS[3], KEYS[1], {
  leases = 'int',
})
if not a then return malformed end
if #ARGV ~= 1 + 3 * a.leases or #KEYS ~= 3 + a.leases or a.leases > 50 then return refused(reject('schema')) end
local wanted = {}
for i = 1, a.leases do wanted[i] = 'l:' .. ARGV[3 * i - 1] end
local desk, now, freed = open_desk(KEYS[2], unpack(wanted)), now_ms(open_row(KEYS[1], {'clock'})), 0
for i = 1, a.leases do
  local lease = {lease = ARGV[3 * i - 1], step = ARGV[3 * i], cancelled = ARGV[3 * i + 1] == '1'}
  local d = admission.reclaim(desk, open_row(KEYS[3 + i]), lease, now)
  -- Those that are not due yet, live, or given back already are passed over: the next sweep looks again.
  if d.verb == 'commit' then
    step('admission.reclaim', d, lease)
    freed = freed + 1
  end
end
return done(commit({freed = freed}))
