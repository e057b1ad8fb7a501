-- completion: the checks and changes of fence 4.
--
-- Run row:   c.gen      the last generation minted     c.lease  the live lease id; absent when none is live
--            c.compute, c.model  retries left          c.out    '1' once a retry was wanted that was not there
--            c.q:<step> the step's latest request: '<gen> open|replay|bound <request id>'
--            c.p:<step> the hash of its prompt         c.d:<step>  the digest that it was bound with
--            c.old:<request id>  '<gen> <step>' of a request that a later one superseded
-- Batch row: compute_retries, model_retries  what a run begins with      watermark  '1' once nothing may be bound
-- leases     lease id → run, for every lease ever granted in the batch
-- requests   request id → run, for every request ever opened in the batch
--
-- A request keeps its gen only: a row never mints one twice, so the gen stands for the lease id that it was minted
-- with. That the caller holds that id too is asked first, of the live lease.
--#include "include/call.lua"
local completion = {}

-- What a command on one step reads of the run's row; the rest of it is other steps'.
function completion.fields(step)
  return {'c.gen', 'c.lease', 'c.compute', 'c.model', 'c.out', 'c.q:' .. step, 'c.p:' .. step, 'c.d:' .. step}
end

local function latest(run, step)
  local gen, state, id = (run.data['c.q:' .. step] or ''):match('^(%d+) (%a+) (.*)$')
  if gen then return {gen = tonumber(gen), state = state, id = id} end
end

local function note(request, state)
  return number_text(request.gen) .. ' ' .. state .. ' ' .. request.id
end

-- `floor`: generations up to it are void, as in fence 7.
local function live_gen(run, gen, floor)
  return run.data['c.lease'] and int(run, 'c.gen') == gen and gen > (floor or 0)
end

function completion.is_live(run, a, floor)
  return live_gen(run, a.gen, floor) and run.data['c.lease'] == a.lease_id
end

function completion.lease(run, batch, leases, a, floor)
  if run.data['c.out'] then return reject('retries_exhausted') end
  if run.data['c.lease'] == a.lease_id and int(run, 'c.gen') > (floor or 0) then
    return duplicate({gen = int(run, 'c.gen')})
  end
  if leases.data[a.lease_id] then return reject('lease_reused') end
  local first = not run.data['c.gen']
  if not first and int(run, 'c.compute') == 0 then return reject('retries_exhausted') end
  if first then
    put(run, 'c.compute', int(batch, 'compute_retries'))
    put(run, 'c.model', int(batch, 'model_retries'))
  else
    add(run, 'c.compute', -1)
  end
  put(run, 'c.gen', math.max(int(run, 'c.gen'), floor or 0) + 1)
  put(run, 'c.lease', a.lease_id)
  put(leases, a.lease_id, a.run)
  return commit({gen = int(run, 'c.gen')})
end

function completion.fence(run, a, floor)
  if not live_gen(run, a.gen, floor) then return reject('stale_lease') end
  drop(run, 'c.lease')
  return commit()
end

function completion.open(run, requests, a, floor)
  if not completion.is_live(run, a, floor) then return reject('stale_lease') end
  local request = latest(run, a.step)
  if request and request.id == a.request_id and request.gen == a.gen and request.state == 'open'
      and run.data['c.p:' .. a.step] == a.prompt_hash then
    return duplicate()
  end
  if requests.data[a.request_id] then return reject('request_reused') end
  if request and request.state == 'bound' then return reject('already_bound') end
  if run.data['c.out'] then return reject('retries_exhausted') end
  -- A late answer to the older one must be told from one that nobody asked for.
  if request then put(run, 'c.old:' .. request.id, number_text(request.gen) .. ' ' .. a.step) end
  put(run, 'c.q:' .. a.step, note({gen = a.gen, id = a.request_id}, 'open'))
  put(run, 'c.p:' .. a.step, a.prompt_hash)
  put(requests, a.request_id, a.run)
  return commit()
end

-- Whether an answer is one to the step's present request, opened under this very lease.
local function not_asked_for(run, request, a)
  if request and request.id == a.request_id then
    if request.gen ~= a.gen then return reject('unknown_request') end
    if run.data['c.p:' .. a.step] ~= a.prompt_hash then return reject('prompt_hash') end
    return nil
  end
  if run.data['c.old:' .. a.request_id] ~= number_text(a.gen) .. ' ' .. a.step then return reject('unknown_request') end
  return reject('superseded')
end

function completion.bind(run, batch, a, floor)
  if batch.data.watermark then return reject('after_close') end
  if not completion.is_live(run, a, floor) then return reject('stale_lease') end
  local request = latest(run, a.step)
  local foreign = not_asked_for(run, request, a)
  if foreign then return foreign end
  if request.state == 'bound' then
    if run.data['c.d:' .. a.step] == a.digest then return duplicate({model_left = int(run, 'c.model')}) end
    return reject('already_bound')
  end
  if run.data['c.out'] then return reject('retries_exhausted') end
  if request.state == 'replay' then return replay('payload_corrupt', {model_left = int(run, 'c.model')}) end
  if not a.payload_ok then
    if int(run, 'c.model') == 0 then
      keep(run, 'c.out', '1')
      return reject('retries_exhausted')
    end
    keep(run, 'c.model', int(run, 'c.model') - 1)
    keep(run, 'c.q:' .. a.step, note(request, 'replay'))
    return replay('payload_corrupt', {model_left = int(run, 'c.model')})
  end
  put(run, 'c.q:' .. a.step, note(request, 'bound'))
  put(run, 'c.d:' .. a.step, a.digest)
  return commit({model_left = int(run, 'c.model')})
end

function completion.close(batch)
  if batch.data.watermark then return duplicate() end
  put(batch, 'watermark', '1')
  return commit()
end
