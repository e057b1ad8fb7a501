--[[ run.adopt: take over runs that another batch has sealed, to be scored anew.
WHY      another judge's verdict on what was answered before is another batch's: the closed one is read here, in the
         same step, and never written to. Which heads are judged is so the server's word, not a planner's.
         Its rows stand behind the batch's own.
KEYS     1  batch      evb:{live.0}:b:<batch>:batch              HASH
         2  desk       evb:{live.0}:b:<batch>:desk:runs          HASH
         3  planes     evb:{live.0}:b:<batch>:plane              HASH
         4  scores     evb:{live.0}:b:<batch>:scores             STREAM
         5  results    evb:{live.0}:b:<batch>:results            STREAM
         6  index      evb:{live.0}:b:<batch>:index              LIST
         7  history    evb:{live.0}:b:<batch>:history            STREAM
         8  source     evb:{live.0}:b:<batch>:batch              HASH
         9… rows       evb:{live.0}:b:<batch>:run:<run>          HASH
ARGV     1 envelope    msgpack   2… items
RETURNS  commit <admitted cursor why_stopped> | duplicate <cursor>
         | reject schema no_batch server_changed after_close batch_mismatch source_open unknown_run capacity bound_full over_budget step_in_flight step_committed lease_reused already_bound admission_reused plane_key plane_header not_admitted duplicate_key stale_gen abandoned already_scored stale_epoch
]]
--#include "include/room.lua"
local a, malformed = begin('run.adopt', KEYS[7], KEYS[1], {
  server = 'str?', plane = 'str', command_id = 'str', consumer = 'str', source = 'str', cursor = 'int', runs = 'int',
  entries = 'int', candidate = 'str', judge = 'str', expected = 'int?',
})
if not a then return malformed end
local batch = open_batch(KEYS[1], 'source', 'cursor', 'intended', 'capacity', 'budget', 'spent', 'reserved', 'holes',
  'n:queued', 'n:sealed', 'n:hole')
if elsewhere(batch, a) then return refused(reject('server_changed')) end
if #ARGV ~= 1 + a.runs + a.entries or #KEYS ~= 8 + 2 * a.runs or a.runs > 100 then return refused(reject('schema')) end
if histogram.closed(batch) then return refused(reject('after_close')) end
if batch.data.source ~= a.source then return refused(reject('batch_mismatch')) end
if not histogram.closed(open_row(KEYS[8], {'status'})) then return refused(reject('source_open')) end
if int(batch, 'cursor') ~= a.cursor then return again(duplicate({cursor = int(batch, 'cursor')})) end
if a.cursor + a.runs > int(batch, 'intended') then return refused(reject('schema')) end
local ids, entries = named_runs(a), read_entries(a)
if not ids or not entries then return refused(reject('schema')) end

-- What the source's run came to: it was sealed, whatever its judge then made of it; or it never was, and is the same
-- hole here. Nothing of this row is changed.
local function look_at_source(i)
  return open_row(KEYS[8 + a.runs + i], {'state', 'tree', 'artifact', 't.head', 't.len', 't.gen', 'conversation', 'h.why',
    'detail'})
end

local function is_sealed(source) return source.data.tree end

-- The row as `seal` left it there, and what the fences of a sealed run must know of it here.
local function take_sealed(run, source, run_id)
  for _, field in ipairs({'tree', 'artifact', 't.head', 't.len', 't.gen', 'conversation'}) do
    if source.data[field] then put(run, field, source.data[field]) end
  end
  if run.data.tree ~= '' then
    local tree = {step = run_id, gen = int(run, 't.gen'), tree_hash = run.data.tree}
    if not step('workspace.record', workspace.record(run, tree), tree) then return false end
  end
  return true
end

local function write_result(room, run, run_id)
  local result = {
    admission = run.data.place, key = result_key(a, run_id), plane = a.plane, body = run.data['t.head'],
  }
  local written = plane.write(room.planes, run, result)
  return step('plane.write', written, {admission = result.admission, key = result.key, body = result.body})
end

local room = open_room(a, batch, KEYS[2], KEYS[3], ids)
local adopted, stopped = {}, nil
for i, id in ipairs(ids) do
  local run, source = open_row(KEYS[8 + i]), look_at_source(i)
  if run.data.state then return refused(reject('schema')) end
  if not source.data.state then return refused(reject('unknown_run')) end
  if is_sealed(source) then
    stopped = let_in(room, a, run, id, i)
    if stopped and not NO_ROOM[stopped.d.reason] then return refused(stopped.d, stopped.by, stopped.args) end
    if stopped then break end
    if not take_sealed(run, source, id) or not write_result(room, run, id) then return refused() end
    move(run, batch, 'sealed')
  else
    if not source.data['h.why'] then return refused(reject('schema')) end
    move(run, batch, 'queued')
    if not make_hole(run, batch, nil, id, source.data['h.why'], source.data.detail) then return refused() end
  end
  adopted[i] = {run = run, id = id, is_sealed = is_sealed(source)}
end
if a.runs == 0 then
  for _, entry in ipairs(entries) do acknowledge(KEYS[5], 'planner', entry) end
  return reply(commit({admitted = 0, cursor = a.cursor, why_stopped = 'none'}), call.name)
end
if #adopted == 0 and stopped then return refused(stopped.d, stopped.by, stopped.args) end

-- writes
for _, one in ipairs(adopted) do
  if one.is_sealed then put(one.run, 'entry', emit(KEYS[4], one.id)) else emit(KEYS[5], one.id) end
  redis.call('RPUSH', KEYS[6], one.id)
end
for _, entry in ipairs(entries) do acknowledge(KEYS[5], 'planner', entry) end
local why = stopped and stopped.d.reason or 'none'
if move_cursor(batch, a, #adopted) then why = 'drained' end
return done(commit({admitted = #adopted, cursor = int(batch, 'cursor'), why_stopped = why}))
