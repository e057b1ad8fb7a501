-- clock: the server's time in ms. It may make anyone suspicious; it decides nothing.
-- A batch that is played from a vector has a clock of its own, which stands still between two moves.
local function now_ms(batch)
  if batch.data.clock then return tonumber(batch.data.clock) end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
