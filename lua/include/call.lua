-- call: one command, from its envelope to its record.
--
--   begin(name, kinds)   reads ARGV[1]; on a wrong argument it records `reject schema` and returns no envelope
--   step(by, d, args)    notes one fence operation's decision as a part of this command; true when it was granted
--   step_kept(by, d, …)  likewise, and the part stands also when the command is refused
--   done(d)              lets the rows' changes stand, records the parts, returns the reply
--   refused(d)           takes the rows' changes back, records the one refusal, returns the reply
--
-- `by` is `<fence>.<op>`. A part carries the arguments that the envelope does not hold under the same name.
--#include "include/decision.lua"
--#include "include/row.lua"
--#shorthand
local SCHEMA = 1
local MAX_ENVELOPE = 65536 -- bytes: an envelope is identity, not payload
local MAX_INT = 9007199254740991 -- 2^53 - 1: the largest whole number that Lua, JSON and msgpack all carry exactly

local call = {
  name = nil, run = nil, history = nil, batch_key = nil, gone = false, parts = {}, kept = {}, env = nil,
}
local last_d, last_by, last_args = nil, nil, nil

local function is_text(v) return type(v) == 'string' and v ~= '' end

local LEAST = {int = 0, ['int?'] = 0, int1 = 1, ['int1?'] = 1}

local function fits(kind, v)
  local least = LEAST[kind]
  if not least then return type(v) == 'boolean' end
  return type(v) == 'number' and v >= least and v <= MAX_INT and v % 1 == 0
end

local fields_of = {} -- of a table of kinds: its fields, those that are texts and the others

local function sorted_out(kinds)
  local texts, others = {}, {}
  for field, kind in pairs(kinds) do
    local of = (kind == 'str' or kind == 'str?') and texts or others
    of[#of + 1] = field
  end
  fields_of[kinds] = {texts = texts, others = others}
  return fields_of[kinds]
end

local function wrong(env, kinds)
  if env.schema ~= SCHEMA then return true end
  local fields = fields_of[kinds] or sorted_out(kinds)
  local texts, others = fields.texts, fields.others
  for i = 1, #texts do
    local value = env[texts[i]]
    if value == nil then
      if kinds[texts[i]] == 'str' then return true end
    elseif value == '' or type(value) ~= 'string' then
      return true
    end
  end
  for i = 1, #others do
    local value, kind = env[others[i]], kinds[others[i]]
    if value == nil then
      if kind:sub(-1) ~= '?' then return true end
    elseif not fits(kind, value) then
      return true
    end
  end
  return false
end

-- A part of what is noted: its operation, arguments and answer, three places in the list, when it was granted. Any other
-- stands in the first of them, whole.
local function note(parts, by, d, args)
  local at = #parts
  if d.verb == 'commit' then
    parts[at + 1], parts[at + 2], parts[at + 3] = by, args or NOTHING, d.answer
  else
    parts[at + 1], parts[at + 2], parts[at + 3] = {by, d.verb, d.reason or '', args or NOTHING, d.answer}, false, false
  end
end

local function all_of(parts)
  local all = {}
  for i = 1, #parts, 3 do
    local by, args = parts[i], parts[i + 1]
    all[#all + 1] = args and {by, 'commit', '', args, parts[i + 2]} or by
  end
  return all
end

-- One entry a command: s all of it, in its short form; or o its name, e the envelope as presented, p its parts, x… what
-- else was presented when refused.
local function record(parts, whole)
  if shorthand and call.env and not whole then
    -- The short form is an economy. Where it has no place for something, it must not break the command.
    local is_well, short = pcall(shorthand, call.env, ARGV[1], call.history, opened[call.batch_key].data, parts)
    if is_well and short then
      server('XADD', call.history, '*', 's', short)
      return
    end
  end
  local entry = {'XADD', call.history, '*', 'o', call.name, 'e', ARGV[1] or '', 'p', cmsgpack.pack(all_of(parts))}
  if whole then
    for i = 2, math.min(#ARGV, 128) do
      entry[#entry + 1] = 'x' .. i
      entry[#entry + 1] = ARGV[i]
    end
  end
  redis.call(unpack(entry))
end

local function reply(d, by)
  if d.answer == NOTHING then return {d.verb, d.reason or '', by} end
  -- Room for eight names and their values: a table that grows as it is filled is copied each time.
  local out = {d.verb, d.reason or '', by, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}
  local length = 3
  for name, value in pairs(d.answer) do
    out[length + 1], out[length + 2] = name, value
    length = length + 2
  end
  return out
end

local function count_refusal(d)
  if d.verb == 'reject' or d.verb == 'replay' then
    redis.call('HINCRBY', call.batch_key, 'refused:' .. d.reason, 1)
  end
end

-- The last part of a command of which nothing else stands but what is kept.
local function record_kept(by, d, args, whole)
  note(call.kept, by, d, args)
  record(call.kept, whole)
end

-- The refusal's record, its count, and nothing else but what the refusal itself keeps. Where there is no batch, neither.
local function note_refusal(d, by, args)
  if call.gone then return end
  write_kept()
  count_refusal(d)
  record_kept(by, d, args, true)
end

local function step(by, d, args)
  if d.verb == 'commit' then -- as in `note`: nearly all are
    local parts = call.parts
    local at = #parts
    parts[at + 1], parts[at + 2], parts[at + 3] = by, args or NOTHING, d.answer
    return true
  end
  last_d, last_by, last_args = d, by, args
  note(call.parts, by, d, args)
  return d.verb == 'duplicate'
end

local function step_kept(by, d, args)
  count_refusal(d)
  note(call.kept, by, d, args)
  return step(by, d, args)
end

local function done(d)
  write_rows()
  if #call.parts == 0 then note(call.parts, call.name, d) end
  record(call.parts)
  return reply(d, call.name)
end

-- With no argument: the last refusal of a step is the command's.
local function refused(d, by, args)
  if not d then d, by, args = last_d, last_by, last_args end
  by = by or call.name
  note_refusal(d, by, args)
  return reply(d, by)
end

-- A command that was applied before, answered again. Recorded, and nothing written but what is kept.
local function again(d)
  write_kept()
  record_kept(call.name, d)
  return reply(d, call.name)
end

-- For a command that is one fence operation.
local function answer(d)
  if d.verb == 'commit' then return done(d) end
  if d.verb == 'duplicate' then return again(d) end
  return refused(d)
end

-- Whether there is such a batch, and whether it was read back from a file, to be looked at: its history ends where the
-- file ends. A batch that was declared here is never taken for one: `create` writes `declared`, and an import never does.
local OF_BATCH = {'status', 'imported', 'declared', 'server', 'lives', 'floor'}
local function look_at(batch_key)
  if not batch_key then return false, false end
  local batch = open_row(batch_key, OF_BATCH).data
  return batch.status, batch.imported and not batch.declared
end

-- What is packed there, or nothing.
local function unpacked(packed)
  local ok, rest, env = pcall(cmsgpack.unpack_one, packed) -- rest is -1 when nothing follows
  if ok and rest == -1 and type(env) == 'table' and #packed <= MAX_ENVELOPE then return env end
end

local looked_into = {} -- envelopes that were unpacked before their command's turn

local function envelope_in(packed)
  local env = looked_into[packed]
  if not env then return unpacked(packed) end
  looked_into[packed] = nil -- a command may write into its own
  return env
end

-- For `ahead`: a command's envelope, nothing of which is checked yet.
local function envelope_ahead(packed)
  local env = unpacked(packed)
  if env then looked_into[packed] = env end
  return env or NOTHING
end

-- Returns the envelope, or nothing and the reply.
--
-- A step of the pipeline that comes to a batch without a row comes to one that was pruned: its sender slept through that.
-- It is refused and not recorded, or the record would be a key that nobody ever removes. (A fence's own script is played
-- without a pipeline; there the row begins with it.) Nothing is recorded of an imported one either: that is an error, and
-- no decision.
local function begin(name, history, batch_key, kinds)
  call.name, call.run, call.history, call.batch_key, call.env = name, nil, history, batch_key, nil
  call.parts = {nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil} -- room for four: nothing grows for most
  last_d, last_by, last_args = nil, nil, nil
  if #call.kept > 0 then call.kept = {} end
  local there, imported = look_at(batch_key)
  call.gone = not batch_key or (not there and name:sub(1, 4) == 'run.')
  if call.gone and batch_key and name ~= 'run.create' then return nil, reply(reject('no_batch'), name) end
  if imported then return nil, redis.error_reply('IMPORTED a batch of that name was imported to look at') end
  local env = envelope_in(ARGV[1] or '')
  if not env or wrong(env, kinds) then return nil, refused(reject('schema')) end
  call.env = env
  return env
end
