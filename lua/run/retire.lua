--[[ run.retire: put a tombstone in the place of a batch that was archived.
WHY      what is removed must be what was archived: a bill or a refusal that came in since is in no file. The batch's
         row goes in the same step, so that nobody finds half a batch, and nothing can be recorded in it any more.
KEYS     1  batch      evb:{live.0}:b:<batch>:batch              HASH
         2  registry   evb:{live.0}:batches                      HASH
         3  history    evb:{live.0}:b:<batch>:history            STREAM
         4… others     evb:{live.0}:b:<other>:batch              HASH
ARGV     1 envelope    msgpack   2… names: those of the others, which are all that are open
RETURNS  commit | duplicate | reject schema no_batch not_ended not_archived source_in_use <by>
         | in_doubt in_flight others_changed
]]
--#include "include/run.lua"
--#include "include/tombstone.lua"
-- Without a history: the record of a refusal would itself be behind the archive's end.
local a, malformed = begin('run.retire', nil, nil, {
  batch = 'str', incarnation = 'str', last = 'str', tombstone = 'str', others = 'int',
})
if not a then return malformed end
if #ARGV ~= 1 + a.others or #KEYS ~= 3 + a.others then return refused(reject('schema')) end
if tombstone_of(KEYS[2], a.batch) == a.tombstone then return reply(duplicate(), call.name) end
local batch = open_row(KEYS[1], {'status', 'incarnation', 'effects_open'})
if not batch.data.status then return refused(reject('no_batch')) end
-- What was imported to look at stands still, however far it had come.
local _, imported = look_at(KEYS[1])
if not imported then
  if not histogram.closed(batch) then return refused(reject('not_ended')) end
  if int(batch, 'effects_open') > 0 then return refused(in_doubt('in_flight')) end
end
local newest = redis.call('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)[1]
if batch.data.incarnation ~= a.incarnation or not newest or newest[1] ~= a.last then
  return refused(reject('not_archived'))
end
-- An open batch that scores this one's runs anew goes on reading them. One that the caller has not heard of may be such.
local row_of = {}
for i = 1, a.others do row_of[ARGV[1 + i]] = KEYS[3 + i] end
local registry = redis.call('HGETALL', KEYS[2])
for i = 1, #registry, 2 do
  local name = registry[i]
  if registry[i + 1] == 'open' and name ~= a.batch then
    if not row_of[name] then return refused(in_doubt('others_changed')) end
    if redis.call('HGET', row_of[name], 'source') == a.batch then
      return refused(reject('source_in_use', {by = name}))
    end
  end
end

-- writes
redis.call('HSET', KEYS[2], a.batch, a.tombstone)
redis.call('UNLINK', KEYS[1])
return reply(commit(), call.name)
