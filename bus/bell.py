"""A bell for idle roles: whoever declares a batch rings it, and who serves nothing waits at it.

Every role looks at the registry once a second, and that alone is what it goes by. The bell only makes it look at once:
one that is not heard (a server that came back empty, a user who may not read it, a release that does not ring) costs
the rest of that second and nothing else. So it is rung beside the script that declares, and not by it.

It is a stream of one entry, read from the last one that was heard: what is rung between a look and the wait is heard.
"""

from __future__ import annotations

from bus.errors import ReplyError, ServerUnreachable
from bus.keys import bell
from bus.link import Link
from bus.port import Runtime
from bus.types import BatchId, Plane

__all__ = ["Bell"]


class Bell:
    """See the module's text. One a process, plane and shard."""

    def __init__(self, link: Link, reader: Link, runtime: Runtime, plane: Plane, shard: int) -> None:
        """`reader`: the connection for reads that wait."""
        self._link, self._reader, self._runtime = link, reader, runtime
        self._key = bell(plane, shard)
        self._heard = b"0-0"
        self._deaf = False

    async def ring(self, batch: BatchId) -> None:
        """A batch was declared. Raises nothing: it is declared, heard or not."""
        try:
            await self._link.command("XADD", self._key, "MAXLEN", 1, "*", "batch", batch)
        except (ReplyError, ServerUnreachable):
            return

    async def wait(self, seconds: float) -> None:
        """Until it is rung, `seconds` at most. Raises ServerUnreachable."""
        if self._deaf:
            await self._runtime.sleep(seconds)
            return
        try:
            block_ms = max(round(1_000 * seconds), 1)
            reply = await self._reader.command(
                "XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", self._key, self._heard
            )
        except ReplyError:  # this user may not: then it is the clock alone
            self._deaf = True
            return
        if reply:
            [[_key, entries]] = reply
            self._heard = entries[-1][0]
