--[[ run.abandon: name runs holes that were never admitted.
WHY      when nothing more can be admitted, what is missing must say why; a close waits for it.
KEYS     1  batch      evb:{live.0}:b:<batch>:batch              HASH
         2  results    evb:{live.0}:b:<batch>:results            STREAM
         3  index      evb:{live.0}:b:<batch>:index              LIST
         4  history    evb:{live.0}:b:<batch>:history            STREAM
         5… rows       evb:{live.0}:b:<batch>:run:<run>          HASH
ARGV     1 envelope    msgpack   2… runs
RETURNS  commit <abandoned cursor> | duplicate <cursor>
         | reject schema no_batch server_changed after_close abandoned already_scored stale_epoch
]]
--#include "include/run.lua"
local a, malformed = begin('run.abandon', KEYS[4], KEYS[1], {
  server = 'str?', cursor = 'int', runs = 'int1', why = 'str',
})
if not a then return malformed end
local batch = open_batch(KEYS[1], 'cursor', 'intended', 'holes', 'n:queued', 'n:hole', 'hole:' .. a.why)
if elsewhere(batch, a) then return refused(reject('server_changed')) end
if #ARGV ~= 1 + a.runs or #KEYS ~= 4 + a.runs or a.runs > 100 then return refused(reject('schema')) end
if histogram.closed(batch) then return refused(reject('after_close')) end
if int(batch, 'cursor') ~= a.cursor then return again(duplicate({cursor = int(batch, 'cursor')})) end
if a.cursor + a.runs > int(batch, 'intended') then return refused(reject('schema')) end
local seen = {}
for i = 1, a.runs do
  local run = open_row(KEYS[4 + i])
  -- One that was admitted has a holder, and a place at the desk: it is ended by `hole`.
  if run.data.state or seen[KEYS[4 + i]] then return refused(reject('schema')) end
  seen[KEYS[4 + i]] = true
  move(run, batch, 'queued')
  if not make_hole(run, batch, nil, ARGV[1 + i], a.why) then return refused() end
end

-- writes
for i = 1, a.runs do
  redis.call('RPUSH', KEYS[3], ARGV[1 + i])
  emit(KEYS[2], ARGV[1 + i])
end
put(batch, 'cursor', a.cursor + a.runs)
if int(batch, 'cursor') == int(batch, 'intended') then step('histogram.drain', histogram.drain(batch)) end
return done(commit({abandoned = a.runs, cursor = int(batch, 'cursor')}))
