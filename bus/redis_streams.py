"""The streams of many batches, read for a group: what is new, what was one's own, what its holders fell silent over."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence

import structlog

from bus.at_once import all_of
from bus.errors import ReplyError
from bus.keys import BatchKeys
from bus.port import Entry, Group
from bus.redis_steps import Steps
from bus.replies import pairs_of
from bus.streams import claimed, delivered
from bus.types import BatchId, ConsumerId
from bus.wire import Reply

__all__ = ["GroupStreams"]

log = structlog.get_logger("evalbus.bus")

_NOTHING_READ: Mapping[str, Reply] = {"XREADGROUP": None, "XAUTOCLAIM": [b"0-0", [], []], "XPENDING": []}
_UNTIL_IT_LOOKS = 0.1  # seconds that a read of a batch that is gone takes: its reader asks the registry every second
_OF_ONE = 8  # entries of a batch at a time where many have some: what is one batch's can go into one call of a script


class GroupStreams(Steps):
    """See the module's text."""

    @property
    def grace_until(self) -> float:
        """Until when, on the runtime's clock, idle times mean nothing: the server or the link was away."""
        return max(self._link.grace_until, self._reader.grace_until)

    @property
    def connections(self) -> int:
        """How often the reading connection was opened."""
        return self._reader.opened

    async def read(
        self, group: Group, consumer: ConsumerId, batches: Sequence[BatchId], count: int, block_ms: int
    ) -> list[Entry]:
        """New entries, at most `count`; waits up to `block_ms` for the first."""
        # COUNT holds for each stream by itself. Of several, those that have something are asked first; when all are
        # empty, one read waits on as many of them as there is room for.
        if len(batches) != 1:
            found = await self.read_now(group, consumer, batches, count)
            if found or not batches:
                return found
        self._turn = (self._turn + count) % len(batches)
        streams = self._streams(group, [*batches, *batches][self._turn : self._turn + min(count, len(batches))])
        reply = await self._group_read(
            group, streams, "XREADGROUP", "GROUP", group.on_server, consumer, "COUNT", count // len(streams),
            "BLOCK", max(block_ms, 1), "STREAMS", *streams, *([">"] * len(streams)),
        )  # fmt: skip
        return delivered(reply, group, streams)

    async def read_now(self, group: Group, consumer: ConsumerId, batches: Sequence[BatchId], count: int) -> list[Entry]:
        """New entries that are there already, at most `count`; another batch comes first each time.

        One command asks as many of them as may all answer in full. Who does may have more, and is asked again.
        """
        found: list[Entry] = []
        first = self._turn % max(len(batches), 1)
        unasked = deque([*batches[first:], *batches[:first]])
        while unasked and (left := count - len(found)) > 0:
            each = max(left // len(unasked), min(left, _OF_ONE))
            asked = [unasked.popleft() for _ in range(min(left // each, len(unasked)))]
            streams = self._streams(group, asked)
            reply = await self._group_read(
                group, streams, "XREADGROUP", "GROUP", group.on_server, consumer, "COUNT", each,
                "STREAMS", *streams, *([">"] * len(streams)),
            )  # fmt: skip
            given = delivered(reply, group, streams)
            found += given
            of_each = Counter(entry.batch for entry in given)
            unasked += [batch for batch in asked if of_each[batch] == each]
            self._turn += len(asked)
        return found

    def _streams(self, group: Group, batches: Iterable[BatchId]) -> dict[str, BatchId]:
        """A group's streams. Not by `keys`: a look at a thousand batches would leave nothing spelt of those at work."""
        return {BatchKeys(self.plane, batch, self.shard).stream(group.stream): batch for batch in batches}

    async def own_pending(
        self, group: Group, consumer: ConsumerId, batches: Sequence[BatchId], count: int
    ) -> list[Entry]:
        """Entries that this consumer was given before and that are still pending for it."""
        streams = self._streams(group, batches)
        if not streams:
            return []
        reply = await self._group_read(
            group, streams, "XREADGROUP", "GROUP", group.on_server, consumer, "COUNT", count, "STREAMS",
            *streams, *(["0"] * len(streams)),
        )  # fmt: skip
        return delivered(reply, group, streams)[:count]

    async def take_idle(
        self, group: Group, consumer: ConsumerId, batches: Sequence[BatchId], count: int, idle_ms: int
    ) -> list[Entry]:
        """Entries of silent consumers, now owned by this one; none while idle times are void."""
        found: list[Entry] = []
        if self._runtime.now() < self.grace_until:
            return found
        for stream, batch in (await self._idle(group, batches, idle_ms)).items():
            cursor = "0-0"
            while len(found) < count:
                # A pass may find nothing and still not be at the end: only the cursor 0-0 says that it is.
                reply = await self._group_read(
                    group, {stream: batch}, "XAUTOCLAIM", stream, group.on_server, consumer, idle_ms, cursor, "COUNT",
                    min(count - len(found), 100),
                )  # fmt: skip
                found += claimed(reply, batch, group)
                cursor = reply[0].decode()
                if cursor == "0-0":
                    break
        return found

    async def _idle(self, group: Group, batches: Sequence[BatchId], idle_ms: int) -> dict[str, BatchId]:
        """Of many batches' streams, those with an entry that has been idle for so long: asked for in one round trip."""
        streams = self._streams(group, batches)
        if len(streams) <= 1:
            return streams
        name = group.on_server
        asked = [
            self._group_read(group, {stream: batch}, "XPENDING", stream, name, "IDLE", idle_ms, "-", "+", 1)
            for stream, batch in streams.items()
        ]
        return {stream: streams[stream] for stream, some in zip(streams, await all_of(asked), strict=True) if some}

    async def _group_read(self, group: Group, streams: Mapping[str, BatchId], *command: str | int) -> Reply:
        """Send a read of a group; when the group is gone (a flush, a failover) create it again and say so.

        Handled entries are deleted as they are acknowledged, so a group that begins at 0 is given exactly what has
        not been handled.
        """
        try:
            return await self._reader.command(*command)
        except ReplyError as error:
            if error.code != "NOGROUP":
                raise
        gone = []
        for stream, batch in streams.items():
            if await self._link.command("EXISTS", self.keys(batch).batch_row):
                await self._recreate(stream, group)
            else:
                gone.append(batch)
        if gone and command[0] in _NOTHING_READ:  # pruned while its reader waited; there are other batches to serve
            log.info("batch.gone", batches=gone, group=group.on_server)
            if "BLOCK" in command:
                await self._runtime.sleep(_UNTIL_IT_LOOKS)
            return _NOTHING_READ[str(command[0])]
        return await self._reader.command(*command)

    async def _recreate(self, stream: str, group: Group) -> None:
        try:
            await self._link.command("XGROUP", "CREATE", stream, group.on_server, "0", "MKSTREAM")
            log.warning("group.recreated", stream=stream, group=group.on_server)
        except ReplyError as error:
            if error.code != "BUSYGROUP":
                raise

    async def undelivered(self, batch: BatchId, group: Group) -> int:
        """How many entries the group has pending, plus 1 when the stream has any that it was never given."""
        stream, name = self.keys(batch).stream(group.stream), group.on_server
        if not await self._group_read(group, {stream: batch}, "XPENDING", stream, name):
            return 0
        pending, groups = await self._link.commands([("XPENDING", stream, name), ("XINFO", "GROUPS", stream)])
        for reply in groups:
            facts = pairs_of(reply)
            if facts[b"name"].decode() == name:
                after = "(" + facts[b"last-delivered-id"].decode()
                waiting = await self._link.command("XRANGE", stream, after, "+", "COUNT", 1)
                return int(pending[0]) + len(waiting)
        return int(pending[0])

    async def dead_letter(self, entry: Entry, consumer: ConsumerId, why: str) -> None:
        """Copy an entry that cannot be read to the dead-letter stream and acknowledge it, by its owner only."""
        stream = self.keys(entry.batch).stream(entry.group.stream)
        await self._step(
            "bury", entry.batch, extra_keys={"stream": stream}, extra_argv={"content": json.dumps(dict(entry.fields))},
            group=entry.group.on_server, entry=entry.id, consumer=consumer, why=why,
        )  # fmt: skip
