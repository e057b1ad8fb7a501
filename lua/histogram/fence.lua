-- histogram: the checks and changes of fence 5, for its own operations and for the pipeline's steps.
--
-- Run row:   h.epoch the fenced epoch    h.digest declared with the first fence    h.bin, h.value the accepted score
--            h.why the hole's reason     a run's row exists when the batch declared the run
-- Batch row: status, intended, quorum, max_in_flight, accepted, holes, fenced (runs in flight), bin:<bin>, snapshot
--#include "include/call.lua"
local histogram = {}

histogram.fields = {'status', 'intended', 'quorum', 'max_in_flight', 'accepted', 'holes', 'fenced', 'snapshot'}

function histogram.closed(batch) return batch.data.status == 'closed' or batch.data.status == 'inconclusive' end
local function declared(run) return run.data.state end
local function in_flight(run) return run.data['h.epoch'] and not run.data['h.bin'] and not run.data['h.why'] end

-- What was never fenced has neither a score nor a digest, and is not asked for them.
function histogram.fence(run, batch, a)
  if histogram.closed(batch) then return reject('after_close') end
  if not declared(run) then return reject('unknown_run') end
  if a.epoch <= int(run, 'h.epoch') then return reject('epoch_not_newer') end
  local was_fenced = run.data['h.epoch']
  if was_fenced and run.data['h.bin'] then return reject('already_scored') end
  if run.data['h.why'] then return reject('abandoned') end
  if was_fenced and run.data['h.digest'] ~= a.digest then return reject('digest_mismatch') end
  if not was_fenced then
    if int(batch, 'fenced') >= int(batch, 'max_in_flight') then return reject('backpressure') end
    add(batch, 'fenced', 1)
    put(run, 'h.digest', a.digest)
  end
  put(run, 'h.epoch', a.epoch)
  return commit()
end

function histogram.score(run, batch, a)
  if not batch.data['bin:' .. a.bin] then return reject('schema') end
  if histogram.closed(batch) then return reject('after_close') end
  if not declared(run) then return reject('unknown_run') end
  if run.data['h.why'] then return reject('abandoned') end
  if not run.data['h.epoch'] or int(run, 'h.epoch') ~= a.epoch then return reject('stale_epoch') end
  if run.data['h.digest'] ~= a.digest then return reject('digest_mismatch') end
  if run.data['h.bin'] then
    if run.data['h.bin'] == a.bin and run.data['h.value'] == a.value then return duplicate() end
    return reject('score_conflict')
  end
  put(run, 'h.bin', a.bin)
  put(run, 'h.value', a.value)
  add(batch, 'fenced', -1)
  add(batch, 'accepted', 1)
  add(batch, 'bin:' .. a.bin, 1)
  return commit()
end

function histogram.abandon(run, batch, a)
  if histogram.closed(batch) then return reject('after_close') end
  if not declared(run) then return reject('unknown_run') end
  if run.data['h.why'] then
    if run.data['h.why'] == a.why then return duplicate() end
    return reject('abandoned')
  end
  if run.data['h.bin'] then return reject('already_scored') end
  if int(run, 'h.epoch') ~= a.epoch then return reject('stale_epoch') end
  if in_flight(run) then add(batch, 'fenced', -1) end
  put(run, 'h.why', a.why)
  add(batch, 'holes', 1)
  return commit()
end

function histogram.drain(batch)
  if batch.data.status ~= 'open' then return duplicate() end
  put(batch, 'status', 'drained')
  return commit()
end

-- Compares counters only. When all runs have ended nothing here can change any more, so the snapshot was computed
-- outside, from the rows; `a.accepted` and `a.holes` show that it was computed from all of them. Who read the rows
-- while the last run was still ending has another count, and reads them again.
function histogram.close(batch, a)
  if batch.data.status == 'closed' then
    return duplicate({snapshot_id = batch.data.snapshot, accepted = int(batch, 'accepted')})
  end
  if batch.data.status == 'inconclusive' then return reject('below_quorum') end
  if batch.data.status ~= 'drained' then return in_doubt('not_drained') end
  if int(batch, 'accepted') + int(batch, 'holes') ~= int(batch, 'intended') then return in_doubt('in_flight') end
  if int(batch, 'accepted') < int(batch, 'quorum') then
    keep(batch, 'status', 'inconclusive')
    return reject('below_quorum')
  end
  if a.accepted ~= int(batch, 'accepted') or (a.holes and a.holes ~= int(batch, 'holes')) then
    return in_doubt('in_flight')
  end
  put(batch, 'status', 'closed')
  put(batch, 'snapshot', a.snapshot_id)
  return commit({snapshot_id = a.snapshot_id, accepted = a.accepted})
end

function histogram.pass_rate(batch, passing)
  if batch.data.status == 'inconclusive' then return reject('below_quorum') end
  if batch.data.status ~= 'closed' then return reject('open_histogram') end
  return commit({
    passed = int(batch, 'bin:' .. passing), accepted = int(batch, 'accepted'), holes = int(batch, 'holes'),
    snapshot_id = batch.data.snapshot,
  })
end
