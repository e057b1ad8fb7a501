-- row: a hash that is read once, changed in memory, and written once.
--
-- Redis does not roll back a script. So nothing is written while checks may still refuse: every change goes to the
-- row's memory. A command that is granted lets its changes stand (`write_rows`); one that is refused takes them back,
-- and only what a refusal itself records (`keep`) stands then. What stands is written when the script's last command
-- has ended (`flush_rows`): a row that all of them share, a batch's or a desk's, is read once and written once.
--
-- A row lists the fields that were changed, in `list`, up to `length`. One that only the command at work changes is its
-- `own`: to take that back, what is known of it is forgotten. For a row that others may have changed before, there is a
-- log: row, field, what the data held, the row's length, four places for each change; from `stand` on, those of the
-- command at work.
local rows, opened = {}, {}
local log, logged, stand = {}, 0, 0
local at_work = nil -- the keys of the rows that are the command's own; nil: all rows are
local UNREAD = {} -- what the data held of a field that nobody had asked for
local kept = {} -- of the command at work: row, field, value, of what a refusal records
local regrets = {} -- likewise: what else is to be undone when it breaks
local rawget, setmetatable, tonumber, type = rawget, setmetatable, tonumber, type
local server = redis.call

local texts = {} -- most numbers are small, and formatting one costs as much as three look-ups
local function number_text(n)
  local text = texts[n]
  if not text then
    text = string.format('%.0f', n)
    texts[n] = text
  end
  return text
end

local is_own = {} -- by key: of a run that one command of the call is about, and no other
local row_of = {} -- of the data of a row that was not read whole
local ON_DEMAND = {__index = function(data, field)
  local row = row_of[data]
  if row.absent[field] then return nil end
  local value = server('HGET', row.key, field)
  if value then data[field] = value else row.absent[field] = true end
  return value or nil
end}

-- Reads fields that are not known yet; what a former command has put is known.
local function read_fields(row, fields)
  local values = #fields > 0 and server('HMGET', row.key, unpack(fields)) or fields
  local data, absent = row.data, row.absent
  setmetatable(data, nil)
  for i = 1, #fields do
    local field, value = fields[i], values[i]
    if data[field] ~= nil then -- a former command has, and the server may not know it yet
    elseif value then data[field] = value
    else absent[field] = true end
  end
  row_of[data] = row
  setmetatable(data, ON_DEMAND)
end

-- Of an open row those of the fields that nobody has asked for yet, in one go.
local function read_more(row, fields)
  if row.whole then return end
  local missing, absent, data = {}, row.absent, row.data
  for i = 1, #fields do
    local field = fields[i]
    if not absent[field] and rawget(data, field) == nil then missing[#missing + 1] = field end
  end
  if #missing > 0 then read_fields(row, missing) end
end

local function read_whole(row)
  local flat, there = server('HGETALL', row.key), {}
  local data = setmetatable(row.data, nil)
  for i = 1, #flat, 2 do
    there[flat[i]] = flat[i + 1]
    if data[flat[i]] == nil then data[flat[i]] = flat[i + 1] end
  end
  -- What the command at work has put unread: nil would no longer mean "not read yet" when it is taken back.
  for at = stand + 1, logged, 4 do
    if log[at] == row and log[at + 2] == UNREAD then log[at + 2] = there[log[at + 1]] or false end
  end
  for field, value in pairs(data) do
    if value == false then data[field] = nil end
  end
  row.whole = true
end

-- All fields of a small hash; or of a larger one the listed fields now, and any other when it is asked for. What is not
-- there is asked for once. A row that a former command has opened is the same row.
local function open_row(key, fields)
  local row = opened[key]
  if not row then
    row = {key = key, data = {}, absent = {}, whole = false, own = is_own[key], list = {}, length = 0}
    if fields then read_fields(row, fields) else read_whole(row) end
    rows[#rows + 1] = row
    opened[key] = row
  elseif not fields and not row.whole then
    read_whole(row)
  end
  return row
end

-- A hash that is not there.
local function new_row(key)
  local row = {key = key, data = {}, whole = true, own = true, list = {}, length = 0}
  rows[#rows + 1] = row
  opened[key] = row
  return row
end

local function note_old(row, field, old)
  log[logged + 1], log[logged + 2], log[logged + 3], log[logged + 4] = row, field, old, row.length
  logged = logged + 4
end

local function put(row, field, value)
  local data, length = row.data, row.length + 1
  if not row.own then
    local old = rawget(data, field)
    if old == nil then old = UNREAD end
    note_old(row, field, old)
  end
  row.list[length] = field
  row.length = length
  data[field] = value
end

-- Removes a field that is known to be there. In a row that was not read whole, nil would mean "not read yet".
local function strike(row, field)
  if row.whole then put(row, field, nil) else put(row, field, false) end
end

local function drop(row, field)
  if row.data[field] then strike(row, field) end
end

local function int(row, field) return (row.data[field] or 0) + 0 end

-- A counter that many commands of a call move is a number until it is written, and is listed once.
local function add(row, field, n)
  local old = row.data[field] or 0
  if row.own or type(old) ~= 'number' or old == 0 then return put(row, field, old + n) end
  note_old(row, field, old)
  row.data[field] = old + n
end

-- A change that a refusal makes too.
local function keep(row, field, value)
  put(row, field, value)
  kept[#kept + 1] = {row = row, field = field, value = row.data[field]}
end

-- For each row of the command's own.
local function settle_own(settle)
  if at_work then
    for i = 1, #at_work do
      local row = opened[KEYS[at_work[i]]]
      if row and row.own then settle(row) end
    end
  else
    for i = 1, #rows do
      if rows[i].own then settle(rows[i]) end
    end
  end
end

-- From here on it is a row that somebody has changed before.
local function stays(row) row.own = false end

-- What is asked of it from here on is read again.
local function forget(row)
  row.length = 0
  row.data = {}
  if not row.whole or row.absent then
    row.whole, row.absent = false, {}
    row_of[row.data] = row
    setmetatable(row.data, ON_DEMAND)
  end
end

-- The command at work is granted: its changes stand.
local function write_rows()
  stand = logged
  settle_own(stays)
  if #kept > 0 then kept = {} end
  if #regrets > 0 then regrets = {} end
end

local function take_back()
  while logged > stand do
    logged = logged - 4
    local row, old = log[logged + 1], log[logged + 3]
    if old == UNREAD or (old == false and row.whole) then old = nil end
    row.data[log[logged + 2]] = old
    row.length = log[logged + 4]
  end
  settle_own(forget)
  if #kept > 0 then kept = {} end
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
  for _, one in ipairs(stands) do put(one.row, one.field, one.value) end
  write_rows()
end

local AT_ONCE = 4000 -- arguments in one command: what `unpack` can put on Lua's stack is bounded

local set, gone = {'HSET'}, {'HDEL'} -- of the row that is being written
local function write_row(row)
  local data, list, n, m = row.data, row.list, 2, 2
  set[2], gone[2] = row.key, row.key
  for i = 1, row.length do
    local field = list[i]
    local value = data[field]
    if value then
      set[n + 1], set[n + 2] = field, value
      n = n + 2
    else
      gone[m + 1] = field
      m = m + 1
    end
    if n >= AT_ONCE then server(unpack(set, 1, n)); n = 2 end
    if m >= AT_ONCE then server(unpack(gone, 1, m)); m = 2 end
  end
  if n > 2 then server(unpack(set, 1, n)) end
  if m > 2 then server(unpack(gone, 1, m)) end
end

local last_acts = {}

-- Have `act` called when the call's last command has ended.
local function at_end(act) last_acts[#last_acts + 1] = act end

local function flush_rows()
  for i = 1, #rows do
    if rows[i].length > 0 then write_row(rows[i]) end
  end
  for _, act in ipairs(last_acts) do act() end
end
