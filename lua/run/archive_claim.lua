--[[ run.archive_claim: become the one who archives a batch's history as it grows, go on being it, or let go.
WHY      two who archive at once would each cut segments of their own, and what is trimmed must be in one chain of them.
         So one holds the lease of the archive. The clock only says when to suspect it; its next trim compares.
KEYS     1  batch      evb:{live.0}:b:<batch>:batch              HASH
         2  history    evb:{live.0}:b:<batch>:history            STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <epoch> | reject schema no_batch taken <by>
]]
--#include "include/run.lua"
-- `lease_ms`: from now on; 0 lets go. `by`, `place`: who it is, and the directory, for those who ask where the history went.
local a, malformed = begin('run.archive_claim', KEYS[2], KEYS[1], {
  archivist = 'str', by = 'str', place = 'str', lease_ms = 'int',
})
if not a then return malformed end
local batch = open_batch(KEYS[1], 'archive.lease', 'archive.until', 'archive.epoch', 'archive.by')
local now, is_ours = now_ms(batch), batch.data['archive.lease'] == a.archivist
-- Asked again and again by who stands by, and no decision about the batch: so it is not in its history.
if not is_ours and now < int(batch, 'archive.until') then
  return reply(reject('taken', {by = batch.data['archive.by']}), call.name)
end
if not is_ours then
  add(batch, 'archive.epoch', 1)
  put(batch, 'archive.lease', a.archivist)
end
put(batch, 'archive.by', a.by)
put(batch, 'archive.place', a.place)
put(batch, 'archive.until', now + a.lease_ms)
write_rows()
return reply(commit({epoch = int(batch, 'archive.epoch')}), call.name)
