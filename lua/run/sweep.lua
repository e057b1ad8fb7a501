--[[ run.sweep: give back the places of leases that expired and were never released.
WHY      a place that is never given back closes the desk for ever. A model call that had one is settled with it: at
         the gateway's figure where that is known, else at what it was admitted for, since nobody knows what it went on
         to spend.
KEYS     1  batch      evb:{live.0}:b:<batch>:batch              HASH
         2  desk_any   evb:{live.0}:b:<batch>:desk:<desk>        HASH
         3  history    evb:{live.0}:b:<batch>:history            STREAM
         4… rows       evb:{live.0}:b:<batch>:run:<run>          HASH
ARGV     1 envelope    msgpack   2… items: lease, step, whether its request is known to be over (1 or 0), figure or ""
RETURNS  commit <freed> | reject schema no_batch
]]
--#include "include/calls.lua"
local a, malformed = begin('run.sweep', KEYS[3], KEYS[1], {
  desk = 'str', leases = 'int',
})
if not a then return malformed end
if #ARGV ~= 1 + 4 * a.leases or #KEYS ~= 3 + a.leases or a.leases > 50 then return refused(reject('schema')) end
local wanted, opened = {}, {}
for i = 1, a.leases do
  wanted[i] = 'l:' .. ARGV[4 * i - 2]
  if ARGV[4 * i + 1] ~= '' and not whole(ARGV[4 * i + 1], 0) then return refused(reject('schema')) end
end
local batch = open_row(KEYS[1], {'clock', 'estimated', unpack(ledger.totals)})
local desk, now, freed = open_desk(KEYS[2], unpack(wanted)), now_ms(batch), 0
for i = 1, a.leases do
  -- Several of the leases may be one run's, and a row is read once.
  local key = KEYS[3 + i]
  local run = opened[key] or open_row(key)
  opened[key] = run
  local lease = {lease = ARGV[4 * i - 2], step = ARGV[4 * i - 1], cancelled = ARGV[4 * i] == '1'}
  local d = admission.reclaim(desk, run, lease, now)
  -- Those that are not due yet, live, or given back already are passed over: the next sweep looks again.
  if d.verb == 'commit' then
    step('admission.reclaim', d, lease)
    settle_swept(run, batch, lease.lease, whole(ARGV[4 * i + 1], 0))
    freed = freed + 1
  end
end
return done(commit({freed = freed}))
