-- many: a script carries one command, or several of one kind that were asked for at the same moment.
--
-- Each is decided by itself, as if it had come alone behind those before it: own envelope, own checks, own record. What
-- they share is the cost of the call, and the rows of their batch, which are read and written once for all.
--#include "include/row.lua"

-- `one` is the script's body. Without `own` it is called for the one command that KEYS and ARGV are.
--
-- Else ARGV[1] says how many arguments each command has, and they follow, command after command. KEYS holds those keys
-- that all commands share, in the order of the header, and then for each command those at the header's positions `own`.
--
-- `ahead` reads, before the first command is decided, what all of them will ask for; it is given their envelopes, and
-- their runs' keys. It decides nothing: where it fails, each command asks for itself.
local function many(one, own, ahead)
  if not own then
    local answer = one()
    flush_rows()
    return answer
  end
  local all_keys, all_argv, counts = KEYS, ARGV, {}
  for count in all_argv[1]:gmatch('%d+') do counts[#counts + 1] = tonumber(count) end
  local shared, is_each, places = #all_keys - #counts * #own, {}, {}
  local said = 0
  for _, count in ipairs(counts) do said = said + count end
  if #counts == 0 or shared < 0 or said ~= #all_argv - 1 then
    return redis.error_reply('ERR a call says first how many arguments each of its commands has')
  end
  for _, place in ipairs(own) do is_each[place] = true end
  for place = 1, shared + #own do
    if not is_each[place] then places[#places + 1] = place end
  end
  KEYS = {}
  for i, place in ipairs(places) do KEYS[place] = all_keys[i] end
  local answers, at = {}, 2
  for place = shared + 1, #all_keys do is_own[all_keys[place]] = is_own[all_keys[place]] == nil end
  at_work = own
  if ahead and #counts > 1 then
    local envelopes, runs = {}, {}
    for i, count in ipairs(counts) do
      envelopes[i], runs[i] = all_argv[at], all_keys[shared + (i - 1) * #own + 1]
      at = at + count
    end
    pcall(ahead, envelopes, runs)
    at = 2
  end
  ARGV = {}
  for i, count in ipairs(counts) do
    for j, place in ipairs(own) do KEYS[place] = all_keys[shared + (i - 1) * #own + j] end
    for j = 1, count do ARGV[j] = all_argv[at + j - 1] end
    for j = count + 1, #ARGV do ARGV[j] = nil end
    at = at + count
    -- One command that breaks must not take along what the others were told, and what they have written by then.
    local is_well, answer = pcall(one)
    if not is_well then
      give_up()
      local text = type(answer) == 'table' and answer.err or tostring(answer)
      answer = {err = text:match('^%u+ ') and text or 'ERR ' .. text}
    end
    answers[i] = answer
  end
  flush_rows()
  return answers
end
