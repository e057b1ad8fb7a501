-- workspace: the checks and changes of fence 9.
--
-- Run row:   w.gen:<step>  the step's generation      w.tree:<step>  the hash of its tree
--            w.verdict:<step>  the verdict on that very tree; absent until there is one
-- Batch row: schemas  the verdicts' known schemas, a JSON list
-- `record` and `supersede` return, beside the decision, the verdict that they took off: it goes into the record, and
-- is kept nowhere else.
--#include "include/call.lua"
local workspace = {}

function workspace.fields(step) return {'w.gen:' .. step, 'w.tree:' .. step, 'w.verdict:' .. step} end

-- No generation is live for a step that was never recorded: 0, which a caller may name, is not one.
local function is_gen(run, a) return run.data['w.gen:' .. a.step] and int(run, 'w.gen:' .. a.step) == a.gen end

local function is_tree(run, a) return run.data['w.tree:' .. a.step] == a.tree_hash end

local function replace(run, a, gen)
  local verdict = run.data['w.verdict:' .. a.step]
  local cleared
  if verdict then
    cleared = {
      step = a.step, gen = int(run, 'w.gen:' .. a.step), tree_hash = run.data['w.tree:' .. a.step], verdict = verdict,
    }
    drop(run, 'w.verdict:' .. a.step)
  end
  put(run, 'w.gen:' .. a.step, gen)
  put(run, 'w.tree:' .. a.step, a.tree_hash)
  return cleared
end

function workspace.record(run, a)
  if is_gen(run, a) and is_tree(run, a) then return duplicate() end
  if a.gen <= int(run, 'w.gen:' .. a.step) then return reject('stale_gen') end
  return commit(), replace(run, a, a.gen)
end

function workspace.knows(batch, schema)
  for _, known in ipairs(cjson.decode(batch.data.schemas or '[]')) do
    if known == schema then return true end
  end
  return false
end

-- The tree's hash was computed before dispatch and is only echoed: what a worker hashes after its own run shows its
-- leftovers too.
function workspace.attach(run, batch, a)
  if not workspace.knows(batch, a.schema) then return reject('schema') end
  if not is_gen(run, a) then return reject('stale_gen') end
  if not is_tree(run, a) then return reject('tree_hash') end
  local verdict = run.data['w.verdict:' .. a.step]
  if verdict then
    if verdict == a.verdict then return duplicate() end
    return reject('already_attached')
  end
  put(run, 'w.verdict:' .. a.step, a.verdict)
  return commit()
end

function workspace.supersede(run, a)
  if not is_gen(run, a) then return reject('stale_gen') end
  local cleared = replace(run, a, a.gen + 1)
  return commit({gen = a.gen + 1}), cleared
end
