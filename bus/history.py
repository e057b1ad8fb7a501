"""The history of a batch: every decision, as the scripts recorded it, and as it is exported.

A script writes one entry: the command's name, its envelope as presented, and a part for each fence operation that
it was made of (or the one that refused it). The export writes a line for each part, ids `<entry>/1`, `<entry>/2`,
and chains the lines, so that an edited, dropped, reordered or truncated file shows.

    {"format": "evalbus-history", "version": 1, "batch", "plane", "suite", "policy"}
    {"id", "fence", "op", "verb", "reason", "envelope", "args", "answer", "chain"}      one a decision, in stream order
    {"entries": n, "head": "…", "snapshot": {…}|null}

`chain` is the SHA-256, in hex, of the previous line's chain (64 zeros before the first) followed by this line
without it.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from bus.archived import ArchivedError, order_of
from bus.contract import CONTRACT
from bus.entries import Entries
from bus.errors import InputError, ViolationError
from bus.events import StoredEvent
from bus.keys import BatchKeys
from bus.link import Link
from bus.port import BatchInfo
from bus.recorded import Part, Recorded
from bus.scripts import script
from bus.snapshot import Snapshot
from bus.texts import text_of
from bus.types import BatchId, EntryId, Plane, RunId

__all__ = [
    "Far",
    "Line",
    "chained",
    "chained_lines",
    "closing",
    "export",
    "header",
    "lines",
    "opening",
    "read_history",
    "refusals",
    "spelt",
]

_AT_ONCE = 500  # entries in one read
_PAYLOADS_AT_ONCE = 100  # of 256 kB at most; one step has no more events than that
_EMPTY_CHAIN = "0" * 64
_BEGINNING = EntryId("")
_ALL = sys.maxsize


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the export, before it is chained."""

    id: str
    fence: str
    op: str
    verb: str
    reason: str | None
    envelope: Mapping[str, Any]
    args: Mapping[str, Any]
    answer: Mapping[str, Any]

    @property
    def ends_batch(self) -> bool:
        """After it nothing of the accepted set can change: the batch is closed, or below its quorum for good."""
        closed = self.verb == "commit" or self.reason == "below_quorum"
        return (self.fence, self.op) == ("histogram", "close") and closed


_FIELDS = tuple(field.name for field in fields(Line))
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


async def read_history(
    link: Link, keys: BatchKeys, after: EntryId = _BEGINNING, limit: int = _ALL
) -> AsyncIterator[Recorded]:
    """Every entry behind `after` in stream order, or `limit` of them, in pieces: memory does not grow with the history.

    Raises ArchivedError when entries behind `after`, or behind what was yielded, have been archived and trimmed.
    """
    reading = Entries(link, keys)
    while True:
        start = "(" + after if after else "-"
        count = min(limit, _AT_ONCE)
        entries = await link.command("XRANGE", keys.history, start, "+", "COUNT", count)
        # In this order: what is trimmed later than this was still there when it was read.
        last, place = await link.command("HMGET", keys.batch_row, "archive.last", "archive.place")
        if last is not None and order_of(archived := EntryId(last.decode())) > order_of(after):
            raise ArchivedError(keys.batch, archived, place.decode("utf-8", "replace"))
        for entry in await reading.read(entries):
            yield entry
        limit -= count
        if len(entries) < count or limit == 0:
            return
        after = EntryId(entries[-1][0].decode())


async def refusals(link: Link, keys: BatchKeys) -> AsyncIterator[Recorded]:
    """The entries that refused something."""
    async for entry in read_history(link, keys):
        if any(part.verb in ("reject", "replay") for part in entry.parts):
            yield entry


async def lines(link: Link, keys: BatchKeys, after: EntryId = _BEGINNING, limit: int = _ALL) -> AsyncIterator[Line]:
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
        if asked >= _PAYLOADS_AT_ONCE or len(group) >= _AT_ONCE:
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


def chained(previous: str, line: Line) -> tuple[str, str]:
    """The line's text without its chain, and its chain."""
    # Its fields by name, and not by `asdict`, which copies every value in depth.
    text = spelt({name: getattr(line, name) for name in _FIELDS})
    return text, hashlib.sha256((previous + text).encode("utf-8")).hexdigest()


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

    last: EntryId = _BEGINNING
    """The entry of which all lines are there."""
    lines: int = 0
    head: str = _EMPTY_CHAIN
    ended: bool = False
    """The entry that ended the batch has gone by."""


async def chained_lines(link: Link, keys: BatchKeys, far: Far, limit: int = _ALL) -> AsyncGenerator[str, None]:
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


def header(plane: Plane, batch: BatchId, info: BatchInfo) -> dict[str, object]:
    """The first line's object."""
    spec = info.spec
    policy = {
        "intended": spec.intended,
        "quorum": spec.quorum,
        "bins": list(spec.bins),
        "bound": spec.bound,
        "max_in_flight": spec.max_in_flight,
        "max_deliveries": spec.max_deliveries,
        "lease_ms": spec.lease_ms,
        "reclaim_ms": spec.reclaim_ms,
        "judge_policy": spec.judge_policy,
        "replay_budget": spec.replay_budget,
        "gate": dict(spec.gate),
        "limits": dict(spec.limits),
    }
    return {
        "format": "evalbus-history",
        "version": 1,
        "batch": batch,
        "plane": plane.value,
        "suite": {"name": spec.suite, "digest": spec.suite_digest},
        "policy": policy,
    }


def spelt(value: object) -> str:
    """A line's one spelling: JSON without blanks, names in the order given, no needless escapes."""
    text = _encoder.encode(value)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair in what somebody presented: spelt out, so that it can be read
        text = json.dumps(value, separators=(",", ":"))
    return text
