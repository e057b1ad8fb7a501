-- sandbox: the checks and changes of fence 8.
--
-- Run row:   b.step:<step>     '<state> <1 when it escapes> <receipt of its latest write>'
--            b.ws:<workspace>  '<epoch> <last log index> <ms of its last sign of life, - once preempted>'
--            b.log:<receipt>   '<1 while the bytes may be on its disk> <log index> <epoch> <step>'
--            b.at:<receipt>, b.path:<receipt>, b.digest:<receipt>  the workspace and the bytes of that write
--            b.took:<command>  '<epoch> <known index> <workspace>' of an acquire
-- Batch row: heartbeat_ms
-- A write is lost for good when an acquire does not prove it, or its step is written again; that is its 1 turned 0.
-- It is held while it is not, and its workspace is live.
--#include "include/call.lua"
local sandbox = {}

sandbox.fields = {'clock', 'heartbeat_ms'}

local function step_of(run, name)
  local state, escapes, receipt = (run.data['b.step:' .. name] or ''):match('^(%a+) ([01]) (.*)$')
  if state then return {name = name, state = state, escapes = escapes == '1', receipt = receipt} end
end

local function step_text(at) return table.concat({at.state, at.escapes and '1' or '0', at.receipt}, ' ') end

-- Silence that was too long is a preemption, whether or not anybody has said so.
local function place_of(run, batch, name, now)
  local epoch, last, beat = (run.data['b.ws:' .. name] or '0 0 -'):match('^(%d+) (%d+) (.+)$')
  local place = {epoch = tonumber(epoch), last = tonumber(last), beat = tonumber(beat)}
  if place.beat and now - place.beat >= int(batch, 'heartbeat_ms') then
    place.epoch, place.beat = place.epoch + 1, nil
  end
  return place
end

local function put_place(run, name, place)
  local beat = place.beat and number_text(place.beat) or '-'
  put(run, 'b.ws:' .. name, table.concat({number_text(place.epoch), number_text(place.last), beat}, ' '))
end

local function write_of(run, receipt)
  local kept, index, epoch, name = (run.data['b.log:' .. receipt] or ''):match('^([01]) (%d+) (%d+) (.*)$')
  if kept then
    return {receipt = receipt, kept = kept == '1', index = tonumber(index), epoch = tonumber(epoch), step = name}
  end
end

local function put_write(run, write)
  put(run, 'b.log:' .. write.receipt, table.concat(
    {write.kept and '1' or '0', number_text(write.index), number_text(write.epoch), write.step}, ' '))
end

local function lose(run, write)
  write.kept = false
  put_write(run, write)
end

local function same_bytes(run, receipt, a)
  return run.data['b.at:' .. receipt] == a.workspace and run.data['b.path:' .. receipt] == a.path
    and run.data['b.digest:' .. receipt] == a.digest
end

local function is_live(place, epoch) return place.beat ~= nil and place.epoch == epoch end

local function is_held(run, batch, at, now)
  return write_of(run, at.receipt).kept and place_of(run, batch, run.data['b.at:' .. at.receipt], now).beat ~= nil
end

-- The writes that may be on a workspace's disk, in log order. Reads the row as a whole.
local function on_disk(run, workspace)
  local writes = {}
  for field in pairs(run.data) do
    local receipt = field:match('^b%.log:(.*)$')
    if receipt and run.data['b.at:' .. receipt] == workspace then
      local write = write_of(run, receipt)
      if write.kept then writes[#writes + 1] = write end
    end
  end
  table.sort(writes, function(one, other) return one.index < other.index end)
  return writes
end

-- What may have left the workspace is undone by the named inverse. The step ends here, also by a refusal.
local function undone(run, at, answer)
  if at.state ~= 'compensated' then
    at.state = 'compensated'
    keep(run, 'b.step:' .. at.name, step_text(at))
  end
  answer.undo_id = at.name .. '~undo'
  return {verb = 'compensate', answer = answer}
end

function sandbox.plan(run, a)
  local at = step_of(run, a.step)
  if at then
    if at.escapes == a.escapes then return duplicate() end
    return reject('step_conflict')
  end
  put(run, 'b.step:' .. a.step, step_text({state = 'pending', escapes = a.escapes, receipt = ''}))
  return commit()
end

local function proved(run, a)
  local kept = {}
  for _, write in ipairs(on_disk(run, a.workspace)) do
    if write.index <= a.known_index then kept[#kept + 1] = write.step end
  end
  return kept
end

-- `run` is read whole: the writes of the last life are looked through.
function sandbox.acquire(run, batch, a, now)
  local epoch, known, workspace = (run.data['b.took:' .. a.command] or ''):match('^(%d+) (%d+) (.*)$')
  if epoch then
    if workspace ~= a.workspace or tonumber(known) ~= a.known_index then return reject('command_reused') end
    return duplicate({epoch = tonumber(epoch), kept = proved(run, a)})
  end
  local place = place_of(run, batch, a.workspace, now)
  if a.known_index > place.last then return reject('unknown_index') end
  place.epoch, place.beat = place.epoch + 1, now
  put_place(run, a.workspace, place)
  for _, write in ipairs(on_disk(run, a.workspace)) do
    if write.index > a.known_index then lose(run, write) end
  end
  put(run, 'b.took:' .. a.command,
    table.concat({number_text(place.epoch), number_text(a.known_index), a.workspace}, ' '))
  return commit({epoch = place.epoch, kept = proved(run, a)})
end

function sandbox.heartbeat(run, batch, a, now)
  local place = place_of(run, batch, a.workspace, now)
  if not is_live(place, a.epoch) then return reject('stale_epoch') end
  place.beat = now
  put_place(run, a.workspace, place)
  return commit()
end

function sandbox.preempt(run, batch, a, now)
  local place = place_of(run, batch, a.workspace, now)
  if not is_live(place, a.epoch) then return reject('stale_epoch') end
  place.epoch, place.beat = place.epoch + 1, nil
  put_place(run, a.workspace, place)
  return commit()
end

function sandbox.write(run, batch, a, now)
  local sent = write_of(run, a.receipt)
  if sent and sent.step == a.step and sent.epoch == a.epoch and same_bytes(run, a.receipt, a) then
    return duplicate({receipt = a.receipt, log_index = sent.index})
  end
  local at, place = step_of(run, a.step), place_of(run, batch, a.workspace, now)
  if not at then return reject('unknown_step') end
  if not is_live(place, a.epoch) then return reject('stale_epoch') end
  if at.state == 'compensated' then return undone(run, at, {}) end
  if at.state == 'committed' or (at.state == 'fenced' and is_held(run, batch, at, now)) then
    if not same_bytes(run, at.receipt, a) then return reject('step_conflict') end
    return duplicate({receipt = at.receipt, log_index = write_of(run, at.receipt).index})
  end
  if at.state == 'fenced' and at.escapes then return undone(run, at, {}) end
  if sent then return reject('receipt_reused') end
  if at.receipt ~= '' then lose(run, write_of(run, at.receipt)) end
  place.last = place.last + 1
  put_place(run, a.workspace, place)
  put_write(run, {receipt = a.receipt, kept = true, index = place.last, epoch = a.epoch, step = a.step})
  put(run, 'b.at:' .. a.receipt, a.workspace)
  put(run, 'b.path:' .. a.receipt, a.path)
  put(run, 'b.digest:' .. a.receipt, a.digest)
  at.state, at.receipt = 'fenced', a.receipt
  put(run, 'b.step:' .. a.step, step_text(at))
  return commit({receipt = a.receipt, log_index = place.last})
end

-- The step's own bytes are gone: that decides it, and the refusal records it.
local function decide_lost(run, at)
  if at.escapes then return undone(run, at, {state = 'compensated'}) end
  at.state = 'rejected'
  keep(run, 'b.step:' .. at.name, step_text(at))
  return reject('stale_epoch', {state = at.state})
end

function sandbox.join(run, batch, a, now)
  local at = step_of(run, a.step)
  if not at then return reject('unknown_step') end
  if at.state == 'committed' then
    if at.receipt == a.receipt then return duplicate({state = at.state}) end
    return reject('unknown_receipt', {state = at.state})
  end
  if at.state == 'compensated' then return undone(run, at, {state = at.state}) end
  local here = at.state == 'fenced' and run.data['b.at:' .. at.receipt] == a.workspace
  local gone = here and not is_held(run, batch, at, now)
  if not is_live(place_of(run, batch, a.workspace, now), a.epoch) then
    if gone then return decide_lost(run, at) end
    return reject('stale_epoch', {state = at.state})
  end
  if not here or at.receipt ~= a.receipt then return reject('unknown_receipt', {state = at.state}) end
  if gone then return decide_lost(run, at) end
  at.state = 'committed'
  put(run, 'b.step:' .. a.step, step_text(at))
  return commit({state = at.state})
end
