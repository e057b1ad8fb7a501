-- known: whether a group still knows an entry.
--
-- A group that was recreated, or a message that could not be read, leaves work that nobody will ever be given.
--#include "include/run.lua"
local function is_known(stream, group, entry)
  if #in_group('XPENDING', stream, group, entry, entry, 1) > 0 then return true end
  local delivered = '0-0'
  for _, one in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local is_ours = false
    for i = 1, #one, 2 do
      if one[i] == 'name' then is_ours = one[i + 1] == group end
      if one[i] == 'last-delivered-id' and is_ours then delivered = one[i + 1] end
    end
  end
  if #redis.call('XRANGE', stream, entry, entry) == 0 then return false end
  local waiting = redis.call('XRANGE', stream, '(' .. delivered, '+', 'COUNT', 1)[1]
  if not waiting then return false end
  local function parts(id) local ms, n = id:match('^(%d+)-(%d+)$'); return tonumber(ms), tonumber(n) end
  local ms, n = parts(entry)
  local first_ms, first_n = parts(waiting[1])
  return ms > first_ms or (ms == first_ms and n >= first_n)
end
