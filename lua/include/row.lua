-- row: a hash that is read once, changed in memory, and written once.
--
-- Redis does not roll back a script. So nothing is written while checks may still refuse: every change goes to the
-- row's memory, and `write_rows` stands at the end of a script that commits. A script that refuses forgets its rows;
-- only what a refusal itself records (`keep`) is written then.
local rows = {}

local function number_text(n) return string.format('%.0f', n) end

-- All fields of a small hash; or of a larger one the listed fields now, and any other when it is asked for. What is not
-- there is asked for once.
local function open_row(key, fields)
  local data, absent = {}, {}
  if fields then
    local values = redis.call('HMGET', key, unpack(fields))
    for i, field in ipairs(fields) do
      if values[i] then data[field] = values[i] else absent[field] = true end
    end
    setmetatable(data, {__index = function(_, field)
      if absent[field] then return nil end
      local value = redis.call('HGET', key, field)
      if value then data[field] = value else absent[field] = true end
      return value or nil
    end})
  else
    local flat = redis.call('HGETALL', key)
    for i = 1, #flat, 2 do data[flat[i]] = flat[i + 1] end
  end
  local row = {key = key, data = data, whole = not fields, changed = {}, kept = {}}
  rows[#rows + 1] = row
  return row
end

local function put(row, field, value)
  if type(value) == 'number' then value = number_text(value) end
  row.data[field] = value
  row.changed[field] = value
end

local function drop(row, field)
  if row.data[field] then
    -- In a row that was not read whole, nil would mean "not read yet".
    if row.whole then row.data[field] = nil else row.data[field] = false end
    row.changed[field] = false
  end
end

local function int(row, field) return tonumber(row.data[field] or '0') end
local function add(row, field, n) put(row, field, int(row, field) + n) end

-- A change that a refusal makes too.
local function keep(row, field, value)
  put(row, field, value)
  row.kept[field] = row.changed[field]
end

local function write_fields(key, fields)
  local set, gone = {}, {}
  for field, value in pairs(fields) do
    if value == false then gone[#gone + 1] = field else set[#set + 1] = field; set[#set + 1] = value end
  end
  if #set > 0 then redis.call('HSET', key, unpack(set)) end
  if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
end

local function write_rows()
  for _, row in ipairs(rows) do write_fields(row.key, row.changed) end
end

local function write_kept()
  for _, row in ipairs(rows) do write_fields(row.key, row.kept) end
end
