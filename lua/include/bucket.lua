-- bucket: a token bucket kept as one number, the time at which it will be full again, in µs of the server's clock.
--
-- What is taken moves that time on by what it takes to refill; what refills it is that the clock goes on. So nothing has
-- to be refilled by anyone, and there is nothing that two workers could refill twice.
-- A take that is larger than the whole bucket passes when the bucket is full, and those after it wait the longer.
--
-- Row: at        when it was last looked at       pause     nobody leaves before
--      turn      the time given to the last one that was told to wait
--      requests, tokens, retries    the buckets
--#include "include/decision.lua"
--#include "include/row.lua"
local bucket = {}
local TIMES = {'pause', 'turn', 'requests', 'tokens', 'retries'}

local function whole(text)
  local n = tonumber(text)
  return n and n >= 0 and n <= 9007199254740991 and n == math.floor(n) and n
end

-- To the µs.
local function put_time(row, field, at) put(row, field, number_text(at)) end

-- The row's time. A clock that was set back takes all times with it; else everyone would wait until it has caught up.
function bucket.now(row)
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
  local back = int(row, 'at') - now
  if back > 0 then
    for _, field in ipairs(TIMES) do
      if row.data[field] then put_time(row, field, math.max(int(row, field) - back, 0)) end
    end
  end
  put_time(row, 'at', now)
  return now
end

-- How long until a take that costs `cost` µs may be made, from a bucket that holds `depth` µs.
function bucket.wait(row, field, now, cost, depth)
  local missing = math.max(int(row, field) - now, 0)
  if cost == 0 then return 0 end
  return math.max(missing - math.max(depth - cost, 0), 0)
end

function bucket.take(row, field, now, cost)
  if cost > 0 then put_time(row, field, math.max(int(row, field), now) + cost) end
end

-- Writes the row, also when the take is refused: the clock was looked at, a turn given. Returns the reply.
function bucket.answer(name, row, d)
  write_rows()
  local out = {d.verb, d.reason or '', name}
  for field, value in pairs(d.answer) do
    out[#out + 1] = field
    out[#out + 1] = number_text(value)
  end
  return out
end

function bucket.malformed(name) return {'reject', 'schema', name} end
