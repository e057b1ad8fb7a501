-- tombstone: what the registry holds of a batch that was pruned.
--
-- 'pruning {…}' while keys of it may be left, 'pruned {…}' when there are none; behind it, where its archive is.
local function tombstone_of(registry, batch)
  local value = redis.call('HGET', registry, batch)
  return value and value:find('^prun%a+ {') and value or nil
end
