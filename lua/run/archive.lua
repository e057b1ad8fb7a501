--[[ run.archive: take a segment of the history off the server that is on a disk.
WHY      what is trimmed is nowhere else any more. So only the holder of the archive's lease may, only the entries that
         follow what is archived, and the row says in the same step how far that is: archive and stream never have a gap
         between them, nor an entry twice.
KEYS     1  batch      evb:{live.0}:b:<batch>:batch              HASH
         2  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <removed> | duplicate | reject schema no_batch stale_archivist not_next
]]
--#include "include/run.lua"
-- A segment: its number, from 1; its first and last entry; how many entries; its digest and that of the segment before.
-- `lines`, `head`: of the export, from the batch's beginning to the segment's end.
local a, malformed = begin('run.archive', KEYS[2], KEYS[1], {
  archivist = 'str', epoch = 'int1', number = 'int1', first = 'str', last = 'str', entries = 'int1',
  previous = 'str', digest = 'str', lines = 'int1', head = 'str',
})
if not a then return malformed end
local batch = open_batch(
  KEYS[1], 'archive.lease', 'archive.epoch', 'archive.number', 'archive.digest', 'archive.entries'
)
local number, digest = int(batch, 'archive.number'), batch.data['archive.digest'] or 'none'
if number == a.number and digest == a.digest then return reply(duplicate(), call.name) end
if batch.data['archive.lease'] ~= a.archivist or int(batch, 'archive.epoch') ~= a.epoch then
  return refused(reject('stale_archivist'))
end
-- Nothing is ever put between two entries: from the first to the last there are those that were read. One stays behind
-- them, so that whoever asks for the newest entry, a prune above all, finds one.
local first, behind = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1], {}
if is_entry_id(a.last) then behind = redis.call('XRANGE', KEYS[2], a.last, '+', 'COUNT', 2) end
local is_next = a.number == number + 1 and a.previous == digest and first and first[1] == a.first
if not is_next or #behind < 2 or behind[1][1] ~= a.last then return refused(reject('not_next')) end
if number == 0 then put(batch, 'archive.first', a.first) end
put(batch, 'archive.number', a.number)
put(batch, 'archive.last', a.last)
put(batch, 'archive.entries', int(batch, 'archive.entries') + a.entries)
put(batch, 'archive.digest', a.digest)
put(batch, 'archive.lines', a.lines)
put(batch, 'archive.head', a.head)

-- writes
write_rows()
local removed = redis.call('XTRIM', KEYS[2], 'MINID', behind[2][1])
return reply(commit({removed = removed}), call.name)
