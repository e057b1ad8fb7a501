-- transcript: the checks and changes of fence 7, for its own operations and for the pipeline's steps.
--
-- Run row:  t.gen    the last generation minted      t.lease  the live lease id; absent when none is live
--           t.head   head of the chain               t.len    number of events
--           t.sealed '1' once sealed                 t.i:<seq> an intention: '<gen> <digest>'      t.opens how many
-- leases    lease id → run, for every lease ever granted in the batch
-- transcript list: '<generation> <head after it> <payload>' for each event, that of seq 1 first
--#include "include/call.lua"
local transcript = {}
local EMPTY_HEAD = string.rep('0', 64)

local function head_of(run) return run.data['t.head'] or EMPTY_HEAD end

local function intention(run, seq)
  if int(run, 't.opens') == 0 then return nil end
  local gen, digest = (run.data['t.i:' .. number_text(seq)] or ''):match('^(%d+) (.*)$')
  if gen then return {gen = tonumber(gen), digest = digest} end
end

-- The row is read whole for them only when there are any.
function transcript.unresolved(run)
  if int(run, 't.opens') == 0 then return NOTHING end
  local seqs = {}
  open_row(run.key)
  for field in pairs(run.data) do
    local seq = field:match('^t%.i:(%d+)$')
    if seq then seqs[#seqs + 1] = tonumber(seq) end
  end
  table.sort(seqs)
  return seqs
end

local function standing(run)
  return {
    gen = int(run, 't.gen'), head = head_of(run), length = int(run, 't.len'), unresolved = transcript.unresolved(run),
  }
end

function transcript.lease(run, leases, a, floor)
  if run.data['t.sealed'] then return reject('sealed') end
  if run.data['t.lease'] == a.lease_id and int(run, 't.gen') > (floor or 0) then return duplicate(standing(run)) end
  if leases.data[a.lease_id] then return reject('lease_reused') end
  put(run, 't.gen', math.max(int(run, 't.gen'), floor or 0) + 1)
  put(run, 't.lease', a.lease_id)
  put(leases, a.lease_id, a.run)
  return commit(standing(run))
end

-- `floor`: generations up to it are void, whatever the row says. It rises when the server was restarted or another was
-- promoted: what was granted last may be lost, and with it the fact that somebody was fenced.
local function live_gen(run, gen, floor)
  return run.data['t.lease'] and int(run, 't.gen') == gen and gen > (floor or 0)
end

function transcript.is_live(run, a, floor)
  return live_gen(run, a.gen, floor) and run.data['t.lease'] == a.lease_id
end

function transcript.fence(run, a, floor)
  if not live_gen(run, a.gen, floor) then return reject('stale_gen') end
  drop(run, 't.lease')
  return commit()
end

function transcript.resume(run, a)
  if not transcript.is_live(run, a) then return reject('stale') end
  return commit({head = head_of(run), length = int(run, 't.len')})
end

-- What append, intend and seal ask first. The number is compared before the random id, which tells a late holder
-- from two holders of one number. The map of leases is read only when something is wrong already.
function transcript.not_live(run, leases_key, a, floor)
  if transcript.is_live(run, a, floor) then return nil end
  local owner = open_row(leases_key, {a.lease_id}).data[a.lease_id]
  if owner and owner ~= a.run then return reject('run_mismatch') end
  if not live_gen(run, a.gen, floor) then return reject('stale_gen') end
  return reject('lease_mismatch')
end

local function head_at(run, transcript_key, seq)
  if seq == int(run, 't.len') then return head_of(run) end
  if seq > int(run, 't.len') then return nil end
  return (redis.call('LINDEX', transcript_key, seq - 1) or ''):match('^%d+ (%x+) ')
end

-- `a.head` is head′ as the caller computed it: the server has no SHA-256, and replay computes it again.
-- The event itself waits in `events` until the whole command is granted.
function transcript.append(run, leases_key, transcript_key, a, events, floor)
  local stale = transcript.not_live(run, leases_key, a, floor)
  if stale then return stale end
  if run.data['t.sealed'] then return reject('sealed') end
  if a.seq == int(run, 't.len') + 1 then
    if a.parent ~= head_of(run) then return reject('forged_prefix') end
  else
    if head_at(run, transcript_key, a.seq) == a.head then return duplicate({head = a.head}) end
    if a.parent ~= head_of(run) then return reject('forged_prefix') end
    return reject('seq_gap')
  end
  local intended = intention(run, a.seq)
  if (intended and intended.digest) ~= a.intent then return reject('intent_mismatch') end
  if intended then
    drop(run, 't.i:' .. number_text(a.seq))
    add(run, 't.opens', -1)
  end
  put(run, 't.len', a.seq)
  put(run, 't.head', a.head)
  events[#events + 1] = {seq = a.seq, payload = a.payload, head = a.head, gen = a.gen}
  return commit({head = a.head})
end

function transcript.write_events(transcript_key, events)
  for _, event in ipairs(events) do
    local text = number_text(event.gen) .. ' ' .. event.head .. ' ' .. event.payload
    if redis.call('RPUSH', transcript_key, text) ~= event.seq then
      -- A command that broke behind its first write has left events that no row knows of.
      if event.seq == 1 then redis.call('LTRIM', transcript_key, 1, 0)
      else redis.call('LTRIM', transcript_key, 0, event.seq - 2) end
      if redis.call('RPUSH', transcript_key, text) ~= event.seq then error('the transcript has lost events') end
    end
  end
end

-- A refused event is kept whole, where a person finds it; nothing reads it back in.
function transcript.bury(dead_key, d, a)
  if d.verb ~= 'reject' then return end
  redis.call('XADD', dead_key, '*', 'reason', d.reason, 'run', a.run, 'lease_id', a.lease_id,
    'seq', number_text(a.seq), 'payload', a.payload)
end

function transcript.intend(run, leases_key, a, floor)
  local stale = transcript.not_live(run, leases_key, a, floor)
  if stale then return stale end
  if run.data['t.sealed'] then return reject('sealed') end
  local intended = intention(run, a.seq)
  if intended then
    if intended.gen ~= a.gen then return in_doubt('dangling') end
    if intended.digest == a.digest then return duplicate() end
    return reject('intent_conflict')
  end
  if a.parent ~= head_of(run) then return reject('forged_prefix') end
  if a.seq <= int(run, 't.len') then return reject('seq_gap') end
  put(run, 't.i:' .. number_text(a.seq), number_text(a.gen) .. ' ' .. a.digest)
  add(run, 't.opens', 1)
  return commit()
end

function transcript.seal(run, leases_key, a, floor)
  local stale = transcript.not_live(run, leases_key, a, floor)
  if stale then return stale end
  if run.data['t.sealed'] then
    if a.head == head_of(run) then return duplicate() end
    return reject('sealed')
  end
  if a.head ~= head_of(run) then return reject('forged_prefix') end
  if #transcript.unresolved(run) > 0 then return in_doubt('unresolved_intent') end
  put(run, 't.sealed', '1')
  return commit()
end
