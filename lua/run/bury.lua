--[[ run.bury: take an unreadable entry off a group, and keep it whole.
WHY      an entry that nobody can read would be delivered for ever; its run is found by requeue.
KEYS     1  batch      evb:{live.0}:b:<batch>:batch              HASH
         2  stream     evb:{live.0}:b:<batch>:<stream>           STREAM
         3  dead       evb:{live.0}:b:<batch>:dead               STREAM
         4  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack   2 content    bytes
RETURNS  commit | reject schema no_batch not_owner
]]
--#include "include/run.lua"
local a, malformed = begin('run.bury', KEYS[4], KEYS[1], {group = 'str', entry = 'str', consumer = 'str', why = 'str'})
if not a then return malformed end
if not is_entry_id(a.entry) then return refused(reject('schema')) end
if not owns(KEYS[2], a.group, a.entry, a.consumer) then return refused(reject('not_owner')) end

-- writes
redis.call('XADD', KEYS[3], '*', 'reason', a.why, 'stream', KEYS[2], 'entry', a.entry, 'content', ARGV[2])
acknowledge(KEYS[2], a.group, a.entry)
return done(commit())
