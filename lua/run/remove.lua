--[[ run.remove: delete keys of a batch that was retired.
WHY      keys are found by a scan, which takes its time: by now the name may be a batch's again, or may be on its way to
         be, imported from the archive. So the registry and the row are asked in the very step that deletes.
KEYS     1  batch      evb:{live.0}:b:<batch>:batch              HASH
         2  registry   evb:{live.0}:batches                      HASH
         3… doomed     evb:{live.0}:b:<batch>:<any>              ANY
ARGV     1 envelope    msgpack
RETURNS  commit <removed> | duplicate | reject schema not_pruned
]]
--#include "include/run.lua"
--#include "include/tombstone.lua"
-- `becomes`: the tombstone when nothing is left, with the last call.
local a, malformed = begin('run.remove', nil, nil, {
  batch = 'str', tombstone = 'str', doomed = 'int', becomes = 'str?',
})
if not a then return malformed end
if #KEYS ~= 2 + a.doomed or a.doomed > 500 then return refused(reject('schema')) end
local stands = tombstone_of(KEYS[2], a.batch)
if a.becomes and stands == a.becomes then return reply(duplicate(), call.name) end
if stands ~= a.tombstone or redis.call('EXISTS', KEYS[1]) == 1 then return refused(reject('not_pruned')) end

-- writes
local removed = 0
for i = 1, a.doomed do removed = removed + redis.call('UNLINK', KEYS[2 + i]) end
if a.becomes then redis.call('HSET', KEYS[2], a.batch, a.becomes) end
return reply(commit({removed = removed}), call.name)
