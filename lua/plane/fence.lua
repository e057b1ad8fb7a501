-- plane: the checks and changes of fence 1, for its own operations and for the pipeline's steps.
--
-- Planes row: in_flight      shadow admissions that are not released yet
--             a:<admission>  '<held|released> <key>', for every admission ever granted: a late writer is told by it
--             k:<key>        the admission that is in flight for the key
-- Run row:    p.row:<key>    the body that was written; '' for the head, `t.head`, of a sealed run
--             p.undo:<key>   '1' once its inverse is queued
-- Batch row:  capacity       shadow admissions held at once, at most
-- undo streams, one a plane: an entry for each inverse, with the key and the admission that asked for it
--
-- The run's row is that of the run in the key. A key that is not the admission's own is refused before it is looked at.
--#include "include/call.lua"
local plane = {}
local PLANES = {live = true, shadow = true}

plane.fields = {'in_flight'}

local function plane_of(key) return key:match('^[^:]*') end
local function is_key(key) return key:match('^[^:]+:[^:]+:[^:]+$') ~= nil end

local function granted(planes, admission)
  local text = planes.data['a:' .. admission]
  if not text then return nil end
  local state, key = text:match('^(%a+) (.*)$')
  return {state = state, key = key, plane = plane_of(key)}
end

function plane.rewrite(a)
  if a.run:find(':', 1, true) or a.step:find(':', 1, true) then return reject('schema') end
  return commit({key = 'shadow:' .. a.run .. ':' .. a.step})
end

function plane.admit(planes, run, batch, a)
  if not PLANES[a.plane] or not is_key(a.key) then return reject('schema') end
  local mine = granted(planes, a.admission)
  if mine then
    if mine.key ~= a.key or mine.plane ~= a.plane then return reject('admission_reused') end
    return duplicate({admission = a.admission})
  end
  if plane_of(a.key) ~= a.plane then return reject('plane_key') end
  local holder = planes.data['k:' .. a.key]
  if holder then return reject('duplicate_key', {admission = holder}) end
  if run.data['p.row:' .. a.key] then return reject('duplicate_key') end
  if a.plane == 'shadow' then
    if int(planes, 'in_flight') >= int(batch, 'capacity') then return reject('capacity') end
    add(planes, 'in_flight', 1)
  end
  put(planes, 'a:' .. a.admission, 'held ' .. a.key)
  put(planes, 'k:' .. a.key, a.admission)
  return commit({admission = a.admission})
end

-- The plane is what the admission recorded: the key and the header are the caller's word.
local function crosses(known, a)
  if plane_of(a.key) ~= known.plane then return reject('plane_key') end
  if a.plane ~= known.plane then return reject('plane_header') end
end

-- `kept`: as what the body is kept; '' where it is the head that the caller seals.
function plane.write(planes, run, a, kept)
  local known = granted(planes, a.admission)
  if not known then return reject('not_admitted') end
  local crossed = crosses(known, a)
  if crossed then return crossed end
  if known.state ~= 'held' or known.key ~= a.key then return reject('not_admitted') end
  if run.data['p.row:' .. a.key] then return reject('duplicate_key') end
  put(run, 'p.row:' .. a.key, kept or a.body)
  return commit()
end

-- The inverse itself waits in `undos` until the whole command is granted.
function plane.undo(planes, run, a, undos)
  local known = granted(planes, a.admission)
  if not known then return reject('not_admitted') end
  local crossed = crosses(known, a)
  if crossed then return crossed end
  if known.key ~= a.key then return reject('not_admitted') end
  if not run.data['p.row:' .. a.key] then return reject('not_written') end
  if run.data['p.undo:' .. a.key] then return duplicate() end
  put(run, 'p.undo:' .. a.key, '1')
  undos[#undos + 1] = {plane = known.plane, key = a.key, admission = a.admission}
  return commit()
end

function plane.queue_undos(streams, undos)
  for _, undo in ipairs(undos) do
    redis.call('XADD', streams[undo.plane], '*', 'key', undo.key, 'admission', undo.admission)
  end
end

function plane.release(planes, a)
  local known = granted(planes, a.admission)
  if not known then return reject('not_admitted') end
  if known.state == 'released' then return duplicate() end
  put(planes, 'a:' .. a.admission, 'released ' .. known.key)
  strike(planes, 'k:' .. known.key, a.admission)
  if known.plane == 'shadow' then add(planes, 'in_flight', -1) end
  return commit()
end
