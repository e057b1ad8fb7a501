-- row: a hash that is read once, changed in memory, and written once.
--
-- Redis does not roll back a script. So nothing is written while checks may still refuse: every change goes to the
-- row's memory. A command that is granted lets its changes stand (`write_rows`); one that is refused takes them back,
-- and only what a refusal itself records (`keep`) stands then. What stands is written when the script's last command
-- has ended (`flush_rows`): a row that all of them share, a batch's or a desk's, is read once and written once.
--
-- `data` is what the hash holds, by field. Of a row that was not read whole, false says that a field is known not to be
-- there; any other is asked for when somebody looks at it.
--
-- A row itself lists what was changed, as HSET takes it: field, value, field, value, up to `length`. Where a field was
-- removed, or moved on after it was listed, the row `is_mixed`, and `data` says what is to be written.
--
-- A row that only the command at work changes is its `own`: to take that back, what is known of it is forgotten. Where
-- others may have changed it before, there is a log: row, field, what the data held, the row's length, four places for
-- each change; from `stand` on, those of the command at work.
local rows, opened = {}, {}
local log, logged, stand = {}, 0, 0
local at_work = nil -- the keys of the rows that are the command's own; nil: all rows are
local is_own = {} -- by key: of a run that one command of the call is about, and no other
local kept = {} -- of the command at work: row, field, value, of what a refusal records
local regrets = {} -- likewise: lists that lose their latest item, and what is said of it, when it breaks
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

local KEY = 0 -- where data on demand has its row's key
local ON_DEMAND = {__index = function(data, field)
  local value = server('HGET', data[KEY], field)
  data[field] = value
  return value
end}

-- A table has room for as many fields as its constructor names, to the next power of two, and is copied each time that
-- it grows beyond. So the key stands there eighteen times: a step knows up to thirty-two fields of a run.
local function on_demand(key)
  return setmetatable({
    [KEY] = key, [KEY] = key, [KEY] = key, [KEY] = key, [KEY] = key, [KEY] = key,
    [KEY] = key, [KEY] = key, [KEY] = key, [KEY] = key, [KEY] = key, [KEY] = key,
    [KEY] = key, [KEY] = key, [KEY] = key, [KEY] = key, [KEY] = key, [KEY] = key,
  }, ON_DEMAND)
end

-- Reads fields that nobody has asked for yet.
local function read_fields(row, fields)
  if #fields == 0 then return end
  local data, values = row.data, server('HMGET', row.key, unpack(fields))
  for i = 1, #fields do data[fields[i]] = values[i] end
end

-- Of an open row those of the fields that nobody has asked for yet, in one go.
local function read_more(row, fields)
  if row.whole then return end
  local missing, data = {}, row.data
  for i = 1, #fields do
    if rawget(data, fields[i]) == nil then missing[#missing + 1] = fields[i] end
  end
  read_fields(row, missing)
end

-- Fields that cannot be there, by what was read already: nobody asks for them.
local function lacks(row, fields)
  if row.whole then return end
  local data = row.data
  for i = 1, #fields do data[fields[i]] = false end
end

local function read_whole(row)
  local flat, data = server('HGETALL', row.key), setmetatable(row.data, nil)
  data[KEY] = nil
  for i = 1, #flat, 2 do
    if data[flat[i]] == nil then data[flat[i]] = flat[i + 1] end
  end
  for field, value in pairs(data) do
    if value == false then data[field] = nil end
  end
  row.whole = true
end

-- Nothing is listed in it yet; likewise it has room for eight changes.
local function unlisted(key, data, whole, own)
  return {
    key = key, data = data, whole = whole, own = own, length = 0, is_mixed = false, is_new = false,
    nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil,
  }
end

-- All fields of a small hash; or of a larger one the listed fields now, and any other when it is asked for. What is not
-- there is asked for once. A row that a former command has opened is the same row.
local function open_row(key, fields)
  local row = opened[key]
  if not row then
    row = unlisted(key, on_demand(key), false, not at_work or is_own[key])
    if fields then read_fields(row, fields) else read_whole(row) end
    rows[#rows + 1] = row
    opened[key] = row
  elseif not fields and not row.whole then
    read_whole(row)
  end
  return row
end

-- A hash that is not there. Its data have room for eight fields.
local function new_row(key)
  local data = {[1] = nil, [2] = nil, [3] = nil, [4] = nil, [5] = nil, [6] = nil, [7] = nil, [8] = nil}
  local row = unlisted(key, data, true, true)
  row.is_new = true
  rows[#rows + 1] = row
  opened[key] = row
  return row
end

local function note_old(row, field, old)
  local at = logged
  log[at + 1], log[at + 2], log[at + 3], log[at + 4] = row, field, old, row.length
  logged = at + 4
end

-- `value`: text or a number; false or nil takes the field away.
local function put(row, field, value)
  local data, length = row.data, row.length
  if not row.own then note_old(row, field, data[field]) end
  row[length + 1], row[length + 2] = field, value
  row.length = length + 2
  if not value then row.is_mixed = true end
  data[field] = value
end

-- Removes a field that is there; `held`: what it is known to hold, if it was not read. In a row that was not read whole,
-- nil would mean "not read yet".
local function strike(row, field, held)
  if held then row.data[field] = held end
  if row.whole then put(row, field, nil) else put(row, field, false) end
end

local function drop(row, field)
  if row.data[field] then strike(row, field) end
end

local function int(row, field) return (row.data[field] or 0) + 0 end

-- A counter that many commands of a call move is a number until it is written, and is listed once: when it is a text yet.
local function add(row, field, n)
  local data = row.data
  local old = data[field]
  local count = (old or 0) + 0
  if count ~= old then return put(row, field, count + n) end
  if not row.own then note_old(row, field, old) end
  row.is_mixed = true
  data[field] = count + n
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
  row.whole = row.is_new
  row.data = row.is_new and {} or on_demand(row.key)
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
    if row.whole and not old then old = nil end
    row.data[log[logged + 2]] = old
    row.length = log[logged + 4]
  end
  settle_own(forget)
  if #kept > 0 then kept = {} end
end

-- The command at work has broken: nothing of it stands.
local function give_up()
  take_back()
  for _, list in ipairs(regrets) do list[list[#list]], list[#list] = nil, nil end
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

local function send(command, key, words, count)
  for first = 1, count, AT_ONCE do
    server(command, key, unpack(words, first, math.min(count, first + AT_ONCE - 1)))
  end
end

local function write_row(row)
  local length, gone, m = row.length, nil, 0
  if row.is_mixed then
    local data, last = row.data, length
    gone, length = {}, 0
    for i = 1, last, 2 do
      local field = row[i]
      local value = data[field]
      if value then
        row[length + 1], row[length + 2] = field, value
        length = length + 2
      else
        m = m + 1
        gone[m] = field
      end
    end
  end
  send('HSET', row.key, row, length)
  send('HDEL', row.key, gone, m)
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
