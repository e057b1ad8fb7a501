-- shorthand: an entry of the history in its short form, without what every entry of its kind would say again.
--
-- `bus/shorthand.py` tells what it looks like, reads it, and has the tables. The loader puts the function in that
-- `bus/shorthand_lua.py` makes of them for the script's own command; a script whose command has no short form has nothing
-- of this file.
local pack, byte, char = cmsgpack.pack, string.byte, string.char
local NO_EVENTS = string.rep('0', 64)
local ENOUGH = 4000 -- bytes: what is longer is not copied with each part that follows

-- Packed numbers and booleans, and the sign of what is absent. One below 0 would be read as a reference.
local N = setmetatable({}, {__index = function(known, value)
  if value == nil then return '\255' end
  if type(value) ~= 'boolean' and (type(value) ~= 'number' or value < 0) then error('it has no place') end
  known[value] = pack(value)
  return known[value]
end})

-- How a text of a length begins; of a number below 0: what refers to the text that was said as so manieth.
local H = setmetatable({}, {__index = function(known, size)
  if size == nil then return '\255' end
  if size < 0 then known[size] = pack(size - 1)
  elseif size < 32 then known[size] = char(160 + size)
  else known[size] = pack(string.rep(' ', size)):sub(1, -size - 1) end
  return known[size]
end})

-- How a list of a length begins.
local L = setmetatable({}, {__index = function(known, size)
  known[size] = size < 16 and char(144 + size) or char(220, (size - size % 256) / 256, size % 256)
  return known[size]
end})

-- Whether an envelope has so many fields, and its packed form begins as that of many does.
local function is_long(packed, fields)
  local first, high, low = byte(packed, 1, 3)
  return first == 0xde and high * 256 + low == fields
end

local function set_aside(full, text)
  full = full or {}
  full[#full + 1] = text
  return full
end

local place_known, place_plane, place_batch, place_server, place_life -- of the history's key: the same for all of a call

-- `packed`: the envelope as it came. nil when there is no short form, and so when it raises.
local function shorthand(env, packed, history, batch, parts)
  if history ~= place_known then
    place_known = history
    place_plane, place_batch = history:match('^[^{]*{(%a+)%.%d+}:b:(.*):history$')
    place_server = batch.lives and batch.server
    place_life = place_server and pack(tonumber(batch.lives))
  end
  if not place_plane or env.plane ~= place_plane or env.batch ~= place_batch then return nil end
  local fields, life, H, N = 3, '\0', H, N
  if env.server ~= nil then
    if env.server ~= place_server then return nil end
    fields, life = 4, place_life
  end
--#entry
end
