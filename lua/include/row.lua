-- row: a hash that is read once, changed in memory, and written once.
--
-- Redis does not roll back a script. So nothing is written while checks may still refuse: every change goes to the
-- row's memory. A command that is granted lets its changes stand (`write_rows`); one that is refused takes them back,
-- and only what a refusal itself records (`keep`) stands then. What stands is written when the script's last command
-- has ended (`flush_rows`): a row that all of them share, a batch's or a desk's, is read once and written once.
local rows, opened = {}, {}
local undo, undone = {}, 0 -- of the command at work: row, field, and what data and changed held, four places each
local kept = {} -- likewise: row, field, value, of what a refusal records
local regrets = {} -- likewise: what else is to be undone when it breaks

local function number_text(n) return string.format('%.0f', n) end

local function read_field(row, field)
  if row.absent[field] then return nil end
  local value = redis.call('HGET', row.key, field)
  if value then row.data[field] = value else row.absent[field] = true end
  return value or nil
end

local row_of = {} -- of the data of a row that was not read whole
local ON_DEMAND = {__index = function(data, field) return read_field(row_of[data], field) end}

local function read_fields(row, fields)
  local values = #fields > 0 and redis.call('HMGET', row.key, unpack(fields)) or {}
  local data, absent = row.data, row.absent
  for i = 1, #fields do
    local field = fields[i]
    if row.changed[field] ~= nil then -- a former command has, and the server does not know it yet
    elseif values[i] then data[field] = values[i]
    else absent[field] = true end
  end
  row_of[data] = row
  setmetatable(data, ON_DEMAND)
end

local function read_whole(row)
  local flat = redis.call('HGETALL', row.key)
  setmetatable(row.data, nil)
  local there = {}
  for i = 1, #flat, 2 do
    there[flat[i]] = flat[i + 1]
    if row.changed[flat[i]] == nil then row.data[flat[i]] = flat[i + 1] end
  end
  -- What the command at work has put unread: nil would no longer mean "not read yet" when it is taken back.
  for at = 1, undone, 4 do
    if undo[at] == row and undo[at + 2] == nil and undo[at + 3] == nil then undo[at + 2] = there[undo[at + 1]] end
  end
  for field, value in pairs(row.changed) do
    if value == false then row.data[field] = nil end
  end
  row.whole = true
end

-- All fields of a small hash; or of a larger one the listed fields now, and any other when it is asked for. What is not
-- there is asked for once. A row that a former command has opened is the same row.
local function open_row(key, fields)
  local row = opened[key]
  if not row then
    row = {key = key, data = {}, whole = false, changed = {}, absent = {}}
    rows[#rows + 1] = row
    opened[key] = row
    if fields then read_fields(row, fields) end
  end
  if not fields and not row.whole then read_whole(row) end
  return row
end

-- A hash that is not there.
local function new_row(key)
  local row = {key = key, data = {}, whole = true, changed = {}, absent = {}}
  rows[#rows + 1] = row
  opened[key] = row
  return row
end

local function change(row, field, value, changed)
  undo[undone + 1], undo[undone + 2] = row, field
  undo[undone + 3], undo[undone + 4] = rawget(row.data, field), row.changed[field]
  undone = undone + 4
  row.data[field] = value
  row.changed[field] = changed
end

local function put(row, field, value)
  if type(value) == 'number' then value = number_text(value) end
  change(row, field, value, value)
end

-- Removes a field that is known to be there. In a row that was not read whole, nil would mean "not read yet".
local function strike(row, field)
  if row.whole then change(row, field, nil, false) else change(row, field, false, false) end
end

local function drop(row, field)
  if row.data[field] then strike(row, field) end
end

local function int(row, field) return tonumber(row.data[field] or '0') end
local function add(row, field, n) put(row, field, int(row, field) + n) end

-- A change that a refusal makes too.
local function keep(row, field, value)
  put(row, field, value)
  kept[#kept + 1] = {row = row, field = field, value = row.changed[field]}
end

-- The command at work is granted: its changes stand.
local function write_rows()
  undone, kept, regrets = 0, {}, {}
end

local function take_back()
  while undone > 0 do
    undone = undone - 4
    local row, field = undo[undone + 1], undo[undone + 2]
    row.data[field] = undo[undone + 3]
    if row.whole and row.data[field] == false then row.data[field] = nil end
    row.changed[field] = undo[undone + 4]
  end
  kept = {}
end

-- The command at work has broken: nothing of it stands.
local function give_up()
  take_back()
  for _, regret in ipairs(regrets) do regret() end
  regrets = {}
end

-- The command at work is refused: nothing of it stands but what is kept.
local function write_kept()
  local stands = kept
  take_back()
  for _, one in ipairs(stands) do change(one.row, one.field, one.value, one.value) end
  write_rows()
end

local AT_ONCE = 4000 -- arguments in one command: what `unpack` can put on Lua's stack is bounded

local function write_fields(key, fields)
  local set, gone = {}, {}
  for field, value in pairs(fields) do
    if value == false then gone[#gone + 1] = field else set[#set + 1] = field; set[#set + 1] = value end
  end
  for at = 1, #set, AT_ONCE do redis.call('HSET', key, unpack(set, at, math.min(at + AT_ONCE - 1, #set))) end
  for at = 1, #gone, AT_ONCE do redis.call('HDEL', key, unpack(gone, at, math.min(at + AT_ONCE - 1, #gone))) end
end

local last_acts = {}

-- Have `act` called when the call's last command has ended.
local function at_end(act) last_acts[#last_acts + 1] = act end

local function flush_rows()
  for _, row in ipairs(rows) do write_fields(row.key, row.changed) end
  for _, act in ipairs(last_acts) do act() end
end
