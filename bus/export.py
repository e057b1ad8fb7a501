"""A batch's history as it is exported from a server: a line for each fence operation of each entry.

A step of the pipeline is one entry of several operations: its lines have the ids `<entry>/1`, `<entry>/2`. Each has the
arguments of its own operation, taken out of the envelope, and the payloads that stand in the transcripts.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bus.contract import CONTRACT
from bus.errors import InputError, ViolationError
from bus.events import StoredEvent
from bus.export_format import EMPTY_CHAIN, Line, chained, header, spelt
from bus.history import ALL, BEGINNING, read_history
from bus.keys import BatchKeys
from bus.link import Link
from bus.port import BatchInfo
from bus.recorded import Part, Recorded
from bus.scripts import script
from bus.snapshot import Snapshot
from bus.texts import text_of
from bus.types import BatchId, EntryId, Plane, RunId

__all__ = ["Far", "chained_lines", "closing", "export", "lines", "opening"]

_ENTRIES_AT_ONCE = 500  # of which the lines are made together
_PAYLOADS_AT_ONCE = 100  # of 256 kB at most; one step has no more events than that


async def lines(link: Link, keys: BatchKeys, after: EntryId = BEGINNING, limit: int = ALL) -> AsyncIterator[Line]:
    """The export's lines, with the payloads of transcript events put back in place. `after`, `limit`: of which entries.

    Payloads stand in the transcripts, one stream a conversation. They are asked for many at a time, because a round
    trip costs more than all the rest of a line; and not for all that was read, because each may have 256 kB.
    """
    group: list[_Untold] = []
    asked = 0
    async for entry in read_history(link, keys, after, limit):
        untold = _Untold(entry, tuple(_arguments(entry, part) for part in entry.parts))
        group.append(untold)
        asked += sum(True for _ in untold.events())
        if asked >= _PAYLOADS_AT_ONCE or len(group) >= _ENTRIES_AT_ONCE:
            for line in await _told(link, keys, group):
                yield line
            group, asked = [], 0
    for line in await _told(link, keys, group):
        yield line


@dataclass(frozen=True, slots=True)
class _Untold:
    """An entry, and its parts' arguments without the payloads that stand elsewhere."""

    entry: Recorded
    arguments: tuple[dict[str, Any], ...]

    def events(self) -> Iterator[dict[str, Any]]:
        """The arguments of those parts that are about an event and do not say which: its payload stands elsewhere."""
        for part, args in zip(self.entry.parts, self.arguments, strict=True):
            if part.fence == "transcript" and part.op == "append" and "payload" not in part.args:
                yield args


async def _told(link: Link, keys: BatchKeys, group: Sequence[_Untold]) -> list[Line]:
    """The lines of some entries."""
    granted = []
    for entry, args in ((one.entry, args) for one in group for args in one.events()):
        if not entry.presented:
            granted.append(args)
            continue
        # It was refused, the event was presented whole, and is nowhere else in this form.
        raw = entry.presented.get(_position(entry, int(args["seq"])))
        args["payload"] = None if raw is None else text_of(raw)
    reads = [_read_of(keys, args) for args in granted]
    for args, found in zip(granted, await link.commands(reads) if reads else [], strict=True):
        if not found:
            raise ViolationError(f"run {args['run']}: event {args['seq']} is in the history but not in the transcript")
        args["payload"] = StoredEvent.read(found).payload
    return [line for one in group for line in _lines_of(one)]


def _read_of(keys: BatchKeys, args: Mapping[str, Any]) -> tuple[str | int, ...]:
    return ("LINDEX", keys.transcript(RunId(args["run"])), int(args["seq"]) - 1)


def _lines_of(untold: _Untold) -> Iterator[Line]:
    entry = untold.entry
    for number, (part, args) in enumerate(zip(entry.parts, untold.arguments, strict=True), start=1):
        yield Line(
            id=f"{entry.id}/{number}" if entry.joint else entry.id,
            fence=part.fence,
            op=part.op,
            verb=part.verb,
            reason=part.reason,
            envelope=entry.envelope,
            args=args,
            answer=_answer(part, exported=entry.exported),
        )


def _arguments(entry: Recorded, part: Part) -> dict[str, Any]:
    """What the operation was given: the part's own arguments, and those that the envelope names."""
    fence = CONTRACT.get(part.fence)
    if entry.exported or fence is None or part.op not in fence.ops:
        return dict(part.args)
    named = {**entry.envelope, **part.args}
    if part.fence == "transcript" and "run" not in part.args and "conversation" in entry.envelope:
        # Each conversation of a run is a chain of its own.
        named["run"] = f"{entry.envelope.get('run')}~{entry.envelope['conversation']}"
    args = {}
    for arg in fence.ops[part.op].args:
        value = named.get(arg.name)
        if value is not None:
            args[arg.name] = _as_presented(value)
    return args


def _as_presented(value: object) -> object:
    """What an envelope carries as text in a list, because it takes no such value itself: see `bus.envelopes`."""
    if not isinstance(value, list) or len(value) != 1:
        return value
    try:
        presented: object = json.loads(value[0], parse_constant=_no_number)
    except (TypeError, ValueError):  # it had no form in JSON either
        return value
    return presented


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is a number in Python alone, and would be none in the export")


def _answer(part: Part, *, exported: bool) -> dict[str, Any]:
    """What the operation answered, in the types of its contract; of an exported entry, as it stood there."""
    fence = CONTRACT.get(part.fence)
    if fence is None or part.op not in fence.ops:
        return dict(part.answer)
    named = fence.ops[part.op].answers
    answer = {name: value for name, value in part.answer.items() if name in named}
    if not exported and part.fence == "outbox" and isinstance(stored := answer.get("args"), str):
        answer["args"] = _as_presented([stored])  # text on the server; here as they stand among the arguments
    return answer


def _position(entry: Recorded, seq: int) -> int:
    """Which argument of a command is the payload of its event `seq`."""
    if entry.command == "run.append":  # several events: a head and a payload each
        return 3 + 2 * (seq - int(entry.envelope["seq"]))
    return script(entry.command).argv.index("payload") + 1


async def export(
    link: Link,
    plane: Plane,
    batch: BatchId,
    info: BatchInfo,
    snapshot: Snapshot | Callable[[], Awaitable[Snapshot]] | None,
    shard: int = 0,
) -> AsyncIterator[str]:
    """The export's lines of text, newline included. Raises InputError when the batch has no history.

    `snapshot`: what the closing line is to hold; or how to take it, which is asked when the entry that ended the batch
    has gone by, and never for an open batch. A batch may end while it is read: then whoever looked at it before would
    have a history that ends, and no snapshot.
    """
    far = Far()
    yield opening(plane, batch, info)
    async for line in chained_lines(link, BatchKeys(plane, batch, shard), far):
        yield line
    if far.lines == 0:
        raise InputError(f"batch {batch!r} has no history on this server")
    if callable(snapshot):
        snapshot = await snapshot() if far.ended else None
    yield closing(far, snapshot)


@dataclass(slots=True)
class Far:
    """How far an export has come."""

    last: EntryId = BEGINNING
    """The entry of which all lines are there."""
    lines: int = 0
    head: str = EMPTY_CHAIN
    ended: bool = False
    """The entry that ended the batch has gone by."""


async def chained_lines(link: Link, keys: BatchKeys, far: Far, limit: int = ALL) -> AsyncGenerator[str, None]:
    """The lines of text behind `far`, which goes on with each; of so many entries. Raises ArchivedError.

    See `read_history`.
    """
    async for line in lines(link, keys, far.last, limit):
        text, far.head = chained(far.head, line)
        far.lines += 1
        far.last = EntryId(line.id.partition("/")[0])
        far.ended = far.ended or line.ends_batch
        yield f'{text[:-1]},"chain":"{far.head}"}}\n'


def opening(plane: Plane, batch: BatchId, info: BatchInfo) -> str:
    """The first line's text."""
    return spelt(header(plane, batch, info)) + "\n"


def closing(far: Far, snapshot: Snapshot | None) -> str:
    """The last line's text."""
    content = None
    if snapshot is not None:
        content = json.loads(snapshot.canonical_bytes()) | {"snapshot_id": snapshot.snapshot_id}
    return spelt({"entries": far.lines, "head": far.head, "snapshot": content}) + "\n"
