--[[ run.claim: hand a delivered run to one worker.
WHY      the pending list delivers at least once: whoever claims takes the run away from every earlier holder,
         in all fences at once, and whoever comes late is told so.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  leases     evb:{live.0}:b:<batch>:leases             HASH
         4  desk       evb:{live.0}:b:<batch>:desk:runs          HASH
         5  desk_model evb:{live.0}:b:<batch>:desk:model         HASH
         6  desk_judge evb:{live.0}:b:<batch>:desk:judge         HASH
         7  planes     evb:{live.0}:b:<batch>:plane              HASH
         8  runs       evb:{live.0}:b:<batch>:runs               STREAM
         9  results    evb:{live.0}:b:<batch>:results            STREAM
         10 history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <gen attempts conversation turning head length unresolved windows epoch wrote> | duplicate <the same>
         | reject schema no_batch server_changed lease_reused not_owner ended duplicate_entry sealed poison retries_exhausted after_close unknown_run abandoned already_scored stale_epoch unknown_index command_reused
]]
--#include "include/claims.lua"
local KINDS = {server = 'str?', run = 'str', lease_id = 'str', entry = 'str', consumer = 'str'}
local OF_RUN = {'state', 'entry', 'attempts'}
-- What a holder leaves in the row. A first claim counts as an attempt, and a count that is taken back stays there as 0:
-- so of a run without attempts nobody has been the holder.
local OF_HOLDERS = {
  'lease', 'conversation', 'turning', 't.gen', 't.lease', 't.head', 't.len', 't.sealed', 'calls', 'windows', 't.opens',
}

local function ahead(packed) claims_ahead(packed, KEYS[3], KEYS[8], 'worker') end

-- Whether this conversation put anything on a disk: that of its last holder, and it is gone.
local function has_written(run, run_id)
  open_row(run.key)
  local prefix = chain_of(run, run_id) .. '.'
  for field, text in pairs(run.data) do
    local of = field:match('^b%.log:') and text:match('^[01] %d+ %d+ (.*)$')
    if of and of:sub(1, #prefix) == prefix then return 1 end
  end
  return 0
end

local function epoch_taken(run, lease_id) return tonumber((run.data['b.took:' .. lease_id] or '0'):match('^%d+')) end

local function licence(run, batch, a)
  local on_disk = batch.data.heartbeat_ms
  return {
    gen = int(run, 't.gen'), attempts = int(run, 'attempts'), conversation = int(run, 'conversation'),
    turning = run.data.turning and 1 or 0, head = head_of(run), length = int(run, 't.len'),
    unresolved = transcript.unresolved(run), windows = open_windows(run),
    epoch = on_disk and epoch_taken(run, a.lease_id) or 0, wrote = on_disk and has_written(run, a.run) or 0,
  }
end

local function end_here(run, batch, a, refusal, detail)
  local places = {desk = open_desk(KEYS[4], 'l:' .. run.data.place), model = KEYS[5], judge = KEYS[6], planes = KEYS[7]}
  if not make_hole(run, batch, places, a.run, refusal.reason, detail) then return refused() end
  wake_planner(KEYS[9], a.run)
  acknowledge(KEYS[8], 'worker', a.entry)
  return done(refusal)
end
--#each
local a, malformed = begin('run.claim', KEYS[10], KEYS[2], KINDS)
if not a then return malformed end
if not is_entry_id(a.entry) then return refused(reject('schema')) end
local run = open_claimed(KEYS[1], OF_RUN, 'attempts', OF_HOLDERS)
local batch = open_batch(KEYS[2], 'max_deliveries', 'compute_retries', 'heartbeat_ms', 'n:queued', 'n:running')
if elsewhere(batch, a) then return refused(reject('server_changed')) end
local leases = open_row(KEYS[3], {a.lease_id})
local floor = floor_of(batch)
local is_running = run.data.state == 'running'
if is_running and run.data.lease == a.lease_id and int(run, 't.gen') > floor then
  return again(duplicate(licence(run, batch, a)))
end
local is_open = (is_running or run.data.state == 'queued') and not histogram.closed(batch)
local refusal = unclaimable(run, leases, KEYS[8], 'worker', a, is_open)
if refusal then return refused(refusal) end
if int(run, 'attempts') >= int(batch, 'max_deliveries') then
  return end_here(run, batch, a, reject('poison'), 'every worker that held it went silent')
end
settle(run, batch, 'model', KEYS[5])
-- A lease that a restart of the server made void is nobody's failure.
local voided = run.data['t.lease'] and int(run, 't.gen') <= floor
if batch.data.compute_retries then
  -- Fence 7 enters the lease id into the map, under its own name for the run.
  local of_4 = completion.lease(run, batch, {data = {}, own = true, length = 0}, a, floor)
  if not step('completion.lease', of_4) then
    if of_4.reason ~= 'retries_exhausted' then return refused() end
    redis.call('HINCRBY', KEYS[2], 'refused:retries_exhausted', 1)
    return end_here(run, batch, a, of_4, 'its compute budget is used up')
  end
end
local of_7 = transcript.lease(run, leases, on_chain(run, a), floor)
if not step('transcript.lease', of_7, {run = chain_of(run, a.run)}) then return refused() end
if batch.data.heartbeat_ms then
  -- Nothing of a predecessor's disk is here: no write of it is proved. They are looked for in the whole row.
  open_row(KEYS[1])
  local args = {workspace = a.run, known_index = 0, command = a.lease_id}
  if not step('sandbox.acquire', sandbox.acquire(run, batch, args, now_ms(batch)), args) then return refused() end
end
put(run, 'lease', a.lease_id)
if not voided then add(run, 'attempts', 1) end
put(run, 'consumer', a.consumer)
if not is_running then move(run, batch, 'running') end
return done(commit(licence(run, batch, a)))
