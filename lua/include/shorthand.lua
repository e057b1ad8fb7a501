-- shorthand: an entry of the history in its short form, without what every entry of its kind would say again.
--
-- `bus/shorthand.py` tells what it looks like, reads it, and has the tables; the loader puts in those of the script's own
-- command and of the parts that it may have:
--   FIELDS  the command's number, then the fields of its envelope      nil: it has no short form
--   SHAPES  by part: its number, how many arguments it has, their names, then those of its answer
--#shapes
local ABSENT, BARE = -1, 64
local NO_EVENTS = string.rep('0', 64)
local words, width, longest = {}, 0, 0 -- the list so far; the longest one of this call, whose table is used again
local met, known, base = {}, 0, 0 -- where each text was said; above `base`: in this entry
local is_short -- whether everything had a place

-- How many fields an envelope has, as its packed form begins: one that names a field twice has fewer than it says.
local function size_in(packed)
  local first, high, low = packed:byte(1, 3)
  if first < 0x90 then return first - 0x80 end
  return first == 0xde and high * 256 + low or -1
end

-- The values of the names at `first…last`, of the `left` fields that there are. What has no name here would be lost.
local function say_named(values, names, first, last, left)
  local words, met, at, seen = words, met, width, known
  for i = first, last do
    local value = values[names[i]]
    at = at + 1
    if value == nil then
      words[at] = ABSENT
    else
      left = left - 1
      local before = met[value]
      if before and before > base then
        words[at] = base - 1 - before
      else
        words[at] = value
        if type(value) == 'string' then
          seen = seen + 1
          met[value] = seen
        elseif type(value) == 'number' and value < 0 then
          is_short = false
        end
      end
    end
  end
  width, known = at, seen
  return left == 0
end

local function size_of(values)
  local size = 0
  if values ~= NOTHING then
    for _ in pairs(values) do size = size + 1 end
  end
  return size
end

local function meet(text)
  known = known + 1
  met[text] = known
end

local place_known, place_plane, place_batch -- of the history's key: the same for all commands of a call

-- How many of the envelope's fields are those that all have, and which life of the server it names; nil when one of them
-- does not say what the key and the row say.
local function said_by_key(env, history, batch)
  if history ~= place_known then
    place_known = history
    place_plane, place_batch = history:match('^[^{]*{(%a+)%.%d+}:b:(.*):history$')
  end
  if not place_plane or env.plane ~= place_plane or env.batch ~= place_batch then return nil end
  if env.server == nil then return 3, 0 end
  if env.server ~= batch.server or not batch.lives then return nil end
  return 4, tonumber(batch.lives)
end

-- `packed`: the envelope as it came. nil when there is no short form.
local function shorthand(env, packed, history, batch, parts)
  if not FIELDS then return nil end
  local heads, life = said_by_key(env, history, batch)
  if not heads then return nil end
  if width > longest then longest = width end
  words[1], words[2], words[3] = FIELDS[1], env.schema, life
  width, base, is_short = 3, known, true
  meet(NO_EVENTS)
  if env.run then
    meet(env.run .. '~0')
    meet(place_plane .. ':' .. env.run .. ':result')
  end
  if not say_named(env, FIELDS, 2, #FIELDS, size_in(packed) - heads) then return nil end
  for i = 1, #parts do
    local one = parts[i]
    local shape = one[2] == 'commit' and one[3] == '' and SHAPES[one[1]]
    width = width + 1
    if shape then
      local args, said, answer = 2 + shape[2], one[4], one[5]
      local size = size_of(said)
      words[width] = size == 0 and shape[1] + BARE or shape[1]
      if size > 0 and not say_named(said, shape, 3, args, size) then return nil end
      if (#shape > args or answer ~= NOTHING) and not say_named(answer, shape, args + 1, #shape, size_of(answer)) then
        return nil
      end
    else
      words[width] = one
    end
  end
  for i = width + 1, longest do words[i] = nil end
  longest = width
  return is_short and cmsgpack.pack(words) or nil
end
