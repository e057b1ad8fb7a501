"""The entries of a history, read as they lie on the server: in the long form, the short one, or brought by an import.

A script writes one entry a command: its name, its envelope as presented, and a part for each fence operation that it
was made of, or the one that refused it. Most entries stand in the short form (`bus.shorthand`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bus import shorthand
from bus.envelopes import decode
from bus.errors import ViolationError
from bus.imported import entry as imported
from bus.keys import BatchKeys
from bus.link import Link
from bus.recorded import Part, Recorded
from bus.replies import pairs_of
from bus.texts import unpacked
from bus.types import EntryId
from bus.wire import Reply

__all__ = ["Entries"]


class Entries:
    """Reads the entries of one batch's history, in whichever form each is kept."""

    def __init__(self, link: Link, keys: BatchKeys) -> None:
        """Asks nothing yet."""
        self._link, self._keys = link, keys
        self._lives: list[str] = []

    async def read(self, found: Sequence[Reply]) -> list[Recorded]:
        """`found`: entries as XRANGE answers them. Raises ViolationError for what no script of ours writes."""
        return [await self._read(EntryId(entry_id.decode()), flat) for entry_id, flat in found]

    async def _read(self, entry_id: EntryId, flat: Sequence[bytes]) -> Recorded:
        if flat[0] != shorthand.FIELD:
            return _recorded(entry_id, flat)
        try:
            said = shorthand.read(flat[1])
            server = await self._server(said.life)
            spelt = shorthand.spell(said, self._keys.plane.value, self._keys.batch, server)
        except ValueError as error:
            raise ViolationError(f"batch {self._keys.batch}, entry {entry_id} of its history: {error}") from error
        return Recorded(entry_id, spelt.command, spelt.envelope, tuple(_part(*part) for part in spelt.parts), {})

    async def _server(self, life: int) -> str | None:
        """The id that belongs to a life of the batch's server."""
        if life > len(self._lives):
            await self._learn_lives()
        if life > len(self._lives):
            raise ValueError(f"life {life} of its server is in no row")
        return self._lives[life - 1] if life else None

    async def _learn_lives(self) -> None:
        row = self._keys.batch_row
        count = int(await self._link.command("HGET", row, "lives") or 0)
        names = [f"life:{number}" for number in range(1, count + 1)]
        self._lives = [server.decode() for server in await self._link.command("HMGET", row, *names)] if names else []


def _recorded(entry_id: EntryId, flat: Sequence[bytes]) -> Recorded:
    """One in the long form, or of a batch that was imported; `flat`: its fields and values in turn."""
    fields = pairs_of(flat)
    if (packed := fields.get(imported.FIELD)) is not None:
        told = imported.unpack(packed)
        return Recorded(entry_id, fields[b"o"].decode(), told.envelope, told.parts, {}, exported=True)
    envelope = _envelope(fields[b"e"])
    presented = {int(name[1:]): value for name, value in fields.items() if name[:1] == b"x"}
    parts = tuple(_part(*part) for part in unpacked(fields[b"p"]))
    return Recorded(entry_id, fields[b"o"].decode(), envelope, parts, presented)


def _envelope(packed: bytes) -> Mapping[str, Any]:
    try:
        return decode(packed)
    except ValueError:
        pass
    try:  # some other client's names a field by a number, or has bytes for text: the scripts may have granted it
        return {str(name): value for name, value in unpacked(packed).items()}
    except (ValueError, AttributeError, TypeError):  # it was no envelope; it was refused, and is shown as it came
        return {"malformed": packed.hex()}


def _part(name: str, verb: str, reason: str, args: object, answer: object) -> Part:
    # An empty Lua table is packed as a list: it has no other way to say "map".
    fence, _, op = name.partition(".")
    named = args if isinstance(args, dict) else {}
    said = answer if isinstance(answer, dict) else {}
    return Part(fence, op, verb, reason or None, named, said)
