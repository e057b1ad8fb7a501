"""The keys of an imported batch, written so that nobody ever finds half of them.

    begin      the batch's row gets the field `imported`: from here on no script does anything under this name
    add        lines, in order: the history's entries, the transcripts' events
    finish     rows, index and counters; then the declaration, by which the batch is found; its name in the registry

Whoever dies in between leaves a row without a declaration. Nobody sees a batch there, and the next import of the name
removes what it finds. Two that import one name at a time do not mix: the later one takes the name over, and the earlier
one stops at its next write.

Nothing is sent twice, or a stream and a list would have it twice. So a connection that is lost ends the import.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bus.errors import InputError, ReplyError, ViolationError
from bus.events import StoredEvent
from bus.imported.effects import Effects
from bus.imported.entry import is_event, pack
from bus.imported.looking import IMPORTED_OPEN
from bus.imported.standing import Standing
from bus.keys import BatchKeys
from bus.link import Link
from bus.replay.lines import Header
from bus.replay.replayed import Replayed
from bus.replay.telling import Told
from bus.types import Gen, RunId
from bus.values import BatchStatus, RunState
from bus.wire import Reply

__all__ = ["Import"]

Command = Sequence[str | bytes | int]

_AT_ONCE = 300  # commands in one write: a round trip costs more than any of them
_MOST_BYTES = 1 << 20  # of events in one write: each may have 256 kB
_SCANNED = 1_000  # keys that one SCAN looks at: about a millisecond of the server
_LISTED = 500  # run ids in one RPUSH
_NO_STEP = "run.imported"
"""As which a step's entry is kept: the export does not say which step it was."""
_DECLARED = ("spec", "incarnation", "intended", "quorum", "max_in_flight", "max_deliveries", "judge_policy",
             "replay_budget", "budget", "source")  # fmt: skip


class Import:
    """One batch on its way into a server; see the module's text."""

    def __init__(self, link: Link, keys: BatchKeys, header: Header, token: str) -> None:
        """`header`: the file's first line. `token`: random, to know this import from another of the same name."""
        self._link, self._keys, self._token = link, keys, token
        self._standing = Standing(Effects(json.loads(header.policy["limits"].get("inverses", "{}"))))
        self._effects = self._standing.effects
        self.declared: Mapping[str, Any] = {}
        """The envelope that declares the batch; empty until it has come by."""
        self._entry: list[Told] = []
        self._waiting: list[Command] = []
        self._bytes = 0

    async def begin(self) -> None:
        """Take the name. Raises InputError when there is a batch of that name."""
        row = self._keys.batch_row
        flat, is_history = await self._link.commands([("HGETALL", row), ("EXISTS", self._keys.history)])
        if b"declared" in flat[::2] or b"spec" in flat[::2]:
            raise self._is_there()
        await self._link.command("HSET", row, "imported", self._token)
        # Somebody may have declared a batch between the two. To the scripts it is one all the same.
        if await self._link.command("HGET", row, "declared") is not None:
            await self._link.command("HDEL", row, "imported")
            raise self._is_there()
        if flat or is_history:
            await self._clear()

    async def add(self, told: Told) -> None:
        """The next line. Raises InputError when another import has taken the name, ServerError."""
        if self._entry and self._entry[-1].entry != told.entry:
            await self._keep_entry()
        self._entry.append(told)
        self._standing.follow(told)
        if not self.declared and (told.fence, told.op, told.verb) == ("run", "create", "commit"):
            self.declared = told.envelope

    async def finish(self, found: Replayed) -> None:
        """There are no more lines; `found` is what replay derived of them. From here on the batch is there.

        Raises ViolationError when the rows do not come to what the models came to, and as `add`.
        """
        await self._keep_entry()
        self._check(found)
        await self._write_rows()
        await self._write()
        row = self._batch_row(found)
        status = BatchStatus(found.status)
        await self._put("HSET", self._keys.batch_row, *_words(row))
        await self._put("HSET", self._keys.registry, found.batch, status.value if status.ended else IMPORTED_OPEN)
        await self._write()

    async def give_up(self) -> None:
        """Leave nothing behind: the file turned out to be another than was meant."""
        if await self._link.command("HGET", self._keys.batch_row, "imported") == self._token.encode():
            await self._clear()
            await self._link.command("HDEL", self._keys.batch_row, "imported")

    # --- what is written -----------------------------------------------------------------------------------

    async def _keep_entry(self) -> None:
        """The entry is whole: one in the history, and one in a transcript for each event that it committed."""
        lines, self._entry = self._entry, []
        if not lines:
            return
        first = lines[0]
        name = _NO_STEP if first.part else f"{first.fence}.{first.op}"
        for told in lines:
            if is_event(told):
                args = told.args
                event = StoredEvent(Gen(int(args["gen"])), told.answer["head"], args["payload"])
                await self._put("RPUSH", self._keys.transcript(RunId(args["run"])), bytes(event))
        await self._put("XADD", self._keys.history, first.entry, "o", name, "i", pack(lines))

    async def _write_rows(self) -> None:
        """Rows before the index: who reads the index finds each row."""
        for run, at in self._standing.runs.items():
            await self._put("HSET", self._keys.run(RunId(run)), *_words(at.fields()))
        for run, fields in self._effects.fields():
            await self._put("HSET", self._keys.run(RunId(run)), *_words(fields))
        names = list(self._standing.runs)
        for start in range(0, len(names), _LISTED):
            await self._put("RPUSH", self._keys.index, *_texts(names[start : start + _LISTED]))
        for run in sorted(self._standing.parked):
            await self._put("SADD", self._keys.review, *_texts([run]))
        in_flight = sum(not at.state.ended for at in self._standing.runs.values())
        await self._put("HSET", self._keys.desk(), "in_flight", in_flight)

    def _batch_row(self, found: Replayed) -> dict[str, str | int]:
        """What the batch's hash says to those who look. `declared` is left out: see `lua/include/call.lua`."""
        runs = self._standing.runs.values()
        row: dict[str, str | int] = {name: self.declared[name] for name in _DECLARED if name in self.declared}
        row |= {f"n:{state}": count for state, count in Counter(at.state.value for at in runs).items()}
        row |= {f"bin:{name}": count for name, count in found.bins.items()}
        row |= {f"hole:{why}": count for why, count in Counter(found.holes.values()).items()}
        row |= {f"refused:{reason}": count for reason, count in found.refusals.items()}
        row |= {name: getattr(found, name) for name in ("spent", "durable", "reserved", "effects_open", "stuck")}
        row |= {"cursor": len(runs), "accepted": len(found.rows), "holes": len(found.holes), "status": found.status}
        if found.status == BatchStatus.CLOSED and found.snapshot_id is not None:
            row["snapshot"] = found.snapshot_id
        return row | {"imported": found.head}

    def _check(self, found: Replayed) -> None:
        """The rows were followed without the models; so they must lead to the same ends."""
        runs = self._standing.runs
        ended = {run: at for run, at in runs.items() if at.state is RunState.SCORED}
        scored = {run: (at.digest, at.epoch, at.bin, at.value) for run, at in ended.items()}
        holes = {run: at.hole for run, at in runs.items() if at.state is RunState.HOLE}
        if scored != {run: (row.digest, row.epoch, row.bin, row.value) for run, row in found.rows.items()}:
            raise ViolationError(f"batch {found.batch}: its rows do not lead to its scores")
        if holes != dict(found.holes):
            raise ViolationError(f"batch {found.batch}: its rows do not lead to its holes")

    # --- how it is written ---------------------------------------------------------------------------------

    async def _put(self, *command: str | bytes | int) -> None:
        self._waiting.append(command)
        self._bytes += sum(len(word) for word in command if isinstance(word, bytes))
        if len(self._waiting) >= _AT_ONCE or self._bytes >= _MOST_BYTES:
            await self._write()

    async def _write(self) -> None:
        commands, self._waiting, self._bytes = self._waiting, [], 0
        if not commands:
            return
        wire = await self._link.wire()
        mine, *replies = await wire.calls([("HGET", self._keys.batch_row, "imported"), *commands])
        if mine != self._token.encode():
            raise InputError(f"another import of batch {self._keys.batch!r} has begun, and this one was left off")
        for reply in (mine, *replies):
            if isinstance(reply, ReplyError):
                raise reply

    async def _clear(self) -> None:
        """Remove what an import left that did not come to its end; the row itself stays, and holds the name."""
        row: Reply = await self._link.command("HGETALL", self._keys.batch_row)
        others = [name for name in row[::2] if name != b"imported"]
        if others:
            await self._link.command("HDEL", self._keys.batch_row, *others)
        cursor = "0"
        while True:
            reply, found = await self._link.command("SCAN", cursor, "MATCH", self._keys.every, "COUNT", _SCANNED)
            doomed = [key for key in found if key != self._keys.batch_row.encode()]
            if doomed:
                await self._link.command("UNLINK", *doomed)
            cursor = reply.decode()
            if cursor == "0":
                return

    def _is_there(self) -> InputError:
        return InputError(
            f"batch {self._keys.batch!r} is on this server already",
            remedy="import it into another one: --url, or --home DIR for one of its own",
        )


def _words(fields: Mapping[str, str | int]) -> list[bytes]:
    return _texts(word for pair in fields.items() for word in pair)


def _texts(words: Iterable[object]) -> list[bytes]:
    return [str(word).encode("utf-8", "surrogatepass") for word in words]
