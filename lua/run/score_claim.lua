--[[ run.score_claim: hand a sealed run to one scorer.
WHY      a scorer that was taken for dead must not sign beside its successor: each claim fences a newer epoch.
KEYS     1  run        evb:{live.0}:b:<batch>:run:<run>          HASH
         2  batch      evb:{live.0}:b:<batch>:batch              HASH
         3  leases     evb:{live.0}:b:<batch>:leases             HASH
         4  desk       evb:{live.0}:b:<batch>:desk:runs          HASH
         5  desk_model evb:{live.0}:b:<batch>:desk:model         HASH
         6  desk_judge evb:{live.0}:b:<batch>:desk:judge         HASH
         7  planes     evb:{live.0}:b:<batch>:plane              HASH
         8  scores     evb:{live.0}:b:<batch>:scores             STREAM
         9  results    evb:{live.0}:b:<batch>:results            STREAM
         10 history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <epoch attempts head tree_hash artifact candidate judge judge_epoch> | duplicate <the same>
         | reject schema no_batch server_changed lease_reused not_owner ended duplicate_entry judge_failed after_close unknown_run epoch_not_newer already_scored abandoned digest_mismatch backpressure stale_epoch
]]
--#include "include/claims.lua"
local KINDS = {server = 'str?', run = 'str', lease_id = 'str', entry = 'str', consumer = 'str'}
local OF_RUN = {
  'state', 'entry', 'j.candidate', 'j.judge', 'j.epoch', 't.head', 'tree', 'artifact', 's.attempts', 'h.why',
}
local OF_SCORERS = {'s.lease', 'h.epoch'} -- what a scorer leaves in the row: as in `claim`, none without an attempt

local function ahead(packed) claims_ahead(packed, KEYS[3], KEYS[8], 'scorer') end

local function licence(run)
  return {
    epoch = int(run, 'h.epoch'), attempts = int(run, 's.attempts'), head = head_of(run), tree_hash = run.data.tree,
    artifact = run.data.artifact or '', candidate = run.data['j.candidate'], judge = run.data['j.judge'],
    judge_epoch = int(run, 'j.epoch'),
  }
end
--#each
local a, malformed = begin('run.score_claim', KEYS[10], KEYS[2], KINDS)
if not a then return malformed end
if not is_entry_id(a.entry) then return refused(reject('schema')) end
local run = open_claimed(KEYS[1], OF_RUN, 's.attempts', OF_SCORERS)
local batch = open_batch(KEYS[2], 'max_deliveries', 'max_in_flight', 'fenced', 'heartbeat_ms', 'n:sealed', 'n:scoring')
if elsewhere(batch, a) then return refused(reject('server_changed')) end
local leases = open_row(KEYS[3], {a.lease_id})
local floor = floor_of(batch)
local is_scoring = run.data.state == 'scoring'
local voided = is_scoring and int(run, 'h.epoch') <= floor
if is_scoring and run.data['s.lease'] == a.lease_id and not voided then return again(duplicate(licence(run))) end
local is_open = (is_scoring or run.data.state == 'sealed') and not histogram.closed(batch)
local refusal = unclaimable(run, leases, KEYS[8], 'scorer', a, is_open)
if refusal then return refused(refusal) end
if int(run, 's.attempts') >= int(batch, 'max_deliveries') then
  local places = {desk = open_desk(KEYS[4], 'l:' .. run.data.place), model = KEYS[5], judge = KEYS[6], planes = KEYS[7]}
  if not make_hole(run, batch, places, a.run, 'judge_failed', 'every scorer that held it went silent') then
    return refused()
  end
  wake_planner(KEYS[9], a.run)
  acknowledge(KEYS[8], 'scorer', a.entry)
  return done(reject('judge_failed'))
end
local fence = {epoch = math.max(int(run, 'h.epoch'), floor) + 1, digest = head_of(run)}
if not step('histogram.fence', histogram.fence(run, batch, fence), fence) then return refused() end
if run.data['s.attempts'] then settle(run, batch, 'judge', KEYS[6]) end
put(leases, a.lease_id, a.run)
put(run, 's.lease', a.lease_id)
put(run, 'consumer', a.consumer)
if not voided then add(run, 's.attempts', 1) end
if not is_scoring then move(run, batch, 'scoring') end
return done(commit(licence(run)))
