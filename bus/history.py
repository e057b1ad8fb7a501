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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import msgpack

from bus.contract import CONTRACT
from bus.envelopes import decode
from bus.errors import InputError, ViolationError
from bus.events import StoredEvent
from bus.imported import entry as imported
from bus.keys import BatchKeys
from bus.link import Link
from bus.port import BatchInfo
from bus.scripts import script
from bus.snapshot import Snapshot
from bus.types import BatchId, EntryId, Plane, RunId

__all__ = [
    "Line",
    "Part",
    "Recorded",
    "chained",
    "export",
    "header",
    "lines",
    "read_history",
    "recorded",
    "refusals",
    "spelt",
]

_AT_ONCE = 500  # entries in one read
_PAYLOADS_AT_ONCE = 100  # of 256 kB at most; one step has no more events than that
_EMPTY_CHAIN = "0" * 64


@dataclass(frozen=True, slots=True)
class Part:
    """One fence operation's decision within a command."""

    fence: str
    op: str
    verb: str
    reason: str | None
    args: Mapping[str, Any]
    """Those that the envelope does not hold under the same name."""
    answer: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One entry of the history. `presented`: the other arguments of a refused command, by position from 2."""

    id: EntryId
    command: str
    envelope: Mapping[str, Any]
    parts: tuple[Part, ...]
    presented: Mapping[int, bytes]
    exported: bool = False
    """Read back from an export: the parts have all their arguments, in the form in which they stand there."""

    @property
    def joint(self) -> bool:
        """Made by a step of the pipeline, not by one fence operation alone."""
        return self.command.startswith("run.")


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


async def read_history(link: Link, keys: BatchKeys) -> AsyncIterator[Recorded]:
    """Every entry in stream order, in pieces: memory does not grow with the history."""
    after = "-"
    while True:
        entries = await link.command("XRANGE", keys.history, after, "+", "COUNT", _AT_ONCE)
        for entry_id, flat in entries:
            yield recorded(EntryId(entry_id.decode()), flat)
        if len(entries) < _AT_ONCE:
            return
        after = "(" + entries[-1][0].decode()


def recorded(entry_id: EntryId, flat: Sequence[bytes]) -> Recorded:
    """An entry as the server holds it, read; `flat`: its fields and values in turn."""
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    if (packed := fields.get(imported.FIELD)) is not None:
        told = imported.unpack(packed)
        return Recorded(
            entry_id, fields[b"o"].decode(), told.envelope, tuple(Part(*one) for one in told.parts), {}, True
        )
    try:
        envelope = decode(fields[b"e"])
    except ValueError:  # what was presented was no envelope; it was refused, and is shown as it came
        envelope = {"malformed": fields[b"e"].hex()}
    unpacked = msgpack.unpackb(fields[b"p"], raw=False, strict_map_key=False, unicode_errors="surrogatepass")
    presented = {int(name[1:]): value for name, value in fields.items() if name[:1] == b"x"}
    parts = tuple(_part(*part) for part in unpacked)
    return Recorded(entry_id, fields[b"o"].decode(), envelope, parts, presented)


def _part(name: str, verb: str, reason: str, args: object, answer: object) -> Part:
    # An empty Lua table is packed as a list: it has no other way to say "map".
    fence, _, op = name.partition(".")
    named = args if isinstance(args, dict) else {}
    said = answer if isinstance(answer, dict) else {}
    return Part(fence, op, verb, reason or None, named, said)


async def refusals(link: Link, keys: BatchKeys) -> AsyncIterator[Recorded]:
    """The entries that refused something."""
    async for entry in read_history(link, keys):
        if any(part.verb in ("reject", "replay") for part in entry.parts):
            yield entry


async def lines(link: Link, keys: BatchKeys) -> AsyncIterator[Line]:
    """The export's lines, with the payloads of transcript events put back in place.

    Payloads stand in the transcripts, one stream a conversation. They are asked for many at a time, because a round
    trip costs more than all the rest of a line; and not for all that was read, because each may have 256 kB.
    """
    group: list[_Untold] = []
    asked = 0
    async for entry in read_history(link, keys):
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
        args["payload"] = None if raw is None else raw.decode("utf-8", "surrogatepass")
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
            answer=_answer(part),
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
        presented: object = json.loads(value[0])
    except (TypeError, ValueError):  # it had no form in JSON either
        return value
    return presented


def _answer(part: Part) -> dict[str, Any]:
    fence = CONTRACT.get(part.fence)
    if fence is None or part.op not in fence.ops:
        return dict(part.answer)
    named = fence.ops[part.op].answers
    return {name: value for name, value in part.answer.items() if name in named}


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
    yield spelt(header(plane, batch, info)) + "\n"
    count, head, ended = 0, _EMPTY_CHAIN, False
    async for line in lines(link, BatchKeys(plane, batch, shard)):
        text, head = chained(head, line)
        yield f'{text[:-1]},"chain":"{head}"}}\n'
        count += 1
        ended = ended or line.ends_batch
    if count == 0:
        raise InputError(f"batch {batch!r} has no history on this server")
    if callable(snapshot):
        snapshot = await snapshot() if ended else None
    content = None
    if snapshot is not None:
        content = json.loads(snapshot.canonical_bytes()) | {"snapshot_id": snapshot.snapshot_id}
    yield spelt({"entries": count, "head": head, "snapshot": content}) + "\n"


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
