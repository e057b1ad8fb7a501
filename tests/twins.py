"""One batch on two buses: the same steps on a real server and in memory, and the whole of both compared after each.

twins = Twins(ServerSide(redis_bus, wire, spec), MemorySide(world, memory_bus, spec))
decision = await twins.both(lambda side: side.bus.give_back(ref))

The two draw the same random ids, so that only the ids of stream entries differ: each side names its own in the order in
which they appeared, `runs.1`, `scores.2`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Protocol

from bus.contract import CONTRACT
from bus.entries import Entries
from bus.memory.batch import WAITING
from bus.memory.bus import MemoryBus, MemoryWorld
from bus.port import BatchSpec, Bus, Counters, Entry, Event, Group, IntentRow, RunEnd, RunRow
from bus.port_calls import JUDGE_DESK, MODEL_DESK
from bus.recorded import Part, Recorded
from bus.redis_bus import RedisBus
from bus.types import Decision, Digest, EntryId, Plane, RunId
from bus.wire import Reply, Wire

__all__ = ["ClockedTokens", "CountedTokens", "MemorySide", "ServerSide", "Side", "Twins", "TwinsDifferError"]


class CountedTokens:
    """A runtime whose random ids are counted: two of them draw the same ones."""

    def __init__(self) -> None:
        self._drawn = itertools.count(1)

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def token(self) -> str:
        return f"{next(self._drawn):032x}"

    def jitter(self) -> float:
        return 0.5


class ClockedTokens(CountedTokens):
    """One whose clock stands still until it is set."""

    ms = 1_000_000

    def now(self) -> float:
        return self.ms / 1000


_SERVERS_OWN = ("schema", "server")  # what an envelope has only where there is a server to read it

_GROUP_OF = {
    "run.claim": Group.WORKER,
    "run.score_claim": Group.SCORER,
    "run.tool_claim": Group.TOOLS,
    "run.tool_requeue": Group.TOOLS,
}
"""Whose entry a command names, when it does not say so itself."""


@dataclass(slots=True)
class Names:
    """A side's stream entries under names that both sides share. The same id may stand in two streams."""

    _names: dict[tuple[Group, str], str] = field(default_factory=dict)
    _ids: dict[str, EntryId] = field(default_factory=dict)
    _count: Counter[Group] = field(default_factory=Counter)
    _of_run: dict[RunId, str] = field(default_factory=dict)

    def meet(self, group: Group, entries: Iterable[str]) -> None:
        """Name those of a stream's entries that were not there before."""
        for entry in entries:
            if (group, entry) not in self._names:
                self._count[group] += 1
                name = f"{group.stream}.{self._count[group]}"
                self._names[group, entry], self._ids[name] = name, EntryId(entry)

    def id_of(self, name: str) -> EntryId:
        """This side's id; what never was the name of an entry stands for itself."""
        return self._ids.get(name, EntryId(name))

    def of(self, group: Group, entry: str) -> str:
        """The shared name."""
        return self._names.get((group, entry), entry)

    def result(self, result: object, group: Group) -> object:
        """What a step returned, in plain data."""
        match result:
            case Decision():
                return [str(result), self._renamed(result.answer, group)]
            case Entry():
                return [self.of(result.group, result.id), result.run, dict(result.fields)]
            case list():
                return [self.result(item, group) for item in result]
        return result

    def row(self, row: RunRow) -> RunRow:
        """A row. An ended one keeps the entry that it had before, whichever stream that was in."""
        for group, states in WAITING.items():
            if row.state in states:
                self._of_run[row.run] = self.of(group, row.entry)
        name = self._of_run.get(row.run, "")
        assert self._ids.get(name, "") == row.entry
        return replace(row, entry=name)

    def record(self, entry: Recorded) -> list[object]:
        """An entry of the history."""
        group = _GROUP_OF.get(entry.command) or Group(entry.envelope.get("group", "worker"))
        envelope = self._renamed(
            {name: value for name, value in entry.envelope.items() if name not in _SERVERS_OWN}, group
        )
        if entry.command == "run.create":  # the declaration has a digest there, and is at hand here
            envelope = {}
        parts = [self._part(entry, part, group) for part in entry.parts]
        if entry.command == "run.sweep":  # the desk is a hash, whose order means nothing
            parts.sort(key=str)
        return [entry.command, envelope, parts]

    def _part(self, entry: Recorded, part: Part, group: Group) -> list[object]:
        """A part with every argument of its operation, wherever it stands; the payload is compared elsewhere."""
        args: Mapping[str, object] = part.args
        answer: Mapping[str, object] = part.answer
        if part.fence in CONTRACT:
            op = CONTRACT[part.fence].ops[part.op]
            given = {**entry.envelope, **part.args}
            if part.fence == "transcript" and "run" not in part.args:  # each conversation is a chain of its own
                given["run"] = f"{entry.envelope['run']}~{entry.envelope['conversation']}"
            args = {arg.name: given[arg.name] for arg in op.args if arg.name in given and arg.name != "payload"}
            answer = {name: value for name, value in part.answer.items() if name in op.answers}
        read = _read_args if part.fence == "outbox" else dict
        return [part.fence, part.op, part.verb, part.reason, read(args), self._renamed(read(answer), group)]

    def _renamed(self, named: Mapping[str, object], group: Group) -> dict[str, object]:
        return {
            name: self.of(group, value) if name == "entry" and isinstance(value, str) else value
            for name, value in named.items()
        }


class Side(Protocol):
    """One of the two buses, and what only a test may do to it."""

    names: Names

    @property
    def bus(self) -> Bus:
        """The bus."""

    async def look(self, group: Group | None) -> dict[str, object]:
        """Everything that there is. `group` is asked how much it has not been given; without one, no transcripts."""

    async def forge(self, group: Group, fields: Mapping[str, str]) -> None:
        """A second message of the same content, as a retried XADD leaves it."""

    async def lose_group(self, group: Group, *, at_end: bool) -> None:
        """The group is destroyed and made anew, at the beginning of its stream or at its end."""

    async def set_clock(self, ms: int) -> None:
        """The batch's clock, by which silence is measured."""

    async def expire(self, run: RunId, place: str, since: int) -> None:
        """A run's place at the desk expires, as of `since` in ms."""


class ServerSide:
    """The bus on a server."""

    def __init__(self, bus: RedisBus, wire: Wire, spec: BatchSpec) -> None:
        self._bus, self.spec = bus, spec
        self.names = Names()
        self._wire, self._keys = wire, bus.keys(spec.batch)
        self._entries = Entries(bus.link, self._keys)
        self._recorded = "-"

    @property
    def bus(self) -> Bus:
        return self._bus

    async def look(self, group: Group | None) -> dict[str, object]:
        keys = self._keys
        commands: list[tuple[str | bytes | int, ...]] = [
            *(("XRANGE", keys.stream(one.stream), "-", "+") for one in Group),
            *(("XPENDING", keys.stream(one.stream), one.on_server, "-", "+", 1000) for one in Group),
            ("XRANGE", keys.history, self._recorded, "+"),
            ("XRANGE", keys.dead, "-", "+"),
            *(("HGET", keys.desk(desk), "in_flight") for desk in (MODEL_DESK, JUDGE_DESK)),
            *(("XRANGE", keys.undo(plane), "-", "+") for plane in Plane),
        ]
        replies: list[Reply]
        replies, shown = await asyncio.gather(self._wire.calls(commands), _Shown.by(self.bus, self.spec, group))
        count = len(Group)
        streams, pending, rest = replies[:count], replies[count : 2 * count], replies[2 * count :]
        history, dead, *rest = rest
        desks, undone = rest[:2], rest[2:]
        for one, stream in zip(Group, streams, strict=True):
            self.names.meet(one, [EntryId(entry.decode()) for entry, _ in stream])
        seen = {
            "streams": [
                {self.names.of(one, entry.decode()): _fields(flat) for entry, flat in stream}
                for one, stream in zip(Group, streams, strict=True)
            ],
            "pending": [
                {self.names.of(one, entry.decode()): owner.decode() for entry, owner, *_ in found}
                for one, found in zip(Group, pending, strict=True)
            ],
            "dead": sorted(_dead(flat) for _, flat in dead),
            "desks": [int(taken or 0) for taken in desks],
            "undone": [[_fields(flat)["key"] for _, flat in stream] for stream in undone],
            **shown.named(self.names),
        }
        if history:
            self._recorded = "(" + history[-1][0].decode()
        return {**seen, "history": [self.names.record(one) for one in await self._entries.read(history)]}

    async def forge(self, group: Group, fields: Mapping[str, str]) -> None:
        words = [word for pair in fields.items() for word in pair]
        await self._wire.call("XADD", self._keys.stream(group.stream), "*", *words)

    async def lose_group(self, group: Group, *, at_end: bool) -> None:
        stream = self._keys.stream(group.stream)
        await self._wire.call("XGROUP", "DESTROY", stream, group.on_server)
        await self._wire.call("XGROUP", "CREATE", stream, group.on_server, "$" if at_end else "0")

    async def set_clock(self, ms: int) -> None:
        await self._wire.call("HSET", self._keys.batch_row, "clock", ms)

    async def expire(self, run: RunId, place: str, since: int) -> None:
        desk = self._keys.desk()
        lease = await self._wire.call("HGET", desk, f"l:{place}")
        gen = lease.decode().split(" ")[1]
        await self._wire.call("HSET", desk, f"l:{place}", f"expired {gen} {since} {run}")
        await self._wire.call("HINCRBY", desk, "generation", 1)
        await self._wire.call("HDEL", self._keys.run(run), f"d.live:{run}")


class MemorySide:
    """The bus in memory."""

    def __init__(self, world: MemoryWorld, bus: MemoryBus, spec: BatchSpec, clock: ClockedTokens) -> None:
        self._bus, self.spec, self.world, self._clock = bus, spec, world, clock
        self.names = Names()
        self._recorded = 0

    @property
    def bus(self) -> Bus:
        return self._bus

    async def look(self, group: Group | None) -> dict[str, object]:
        shown = await _Shown.by(self.bus, self.spec, group)
        at = self.world.batches[self.spec.batch]
        for one in Group:
            self.names.meet(one, at.streams[one].entries)
        letters = [
            [
                letter.reason,
                _presented(letter.event.run),  # not as the chain's own names have it
                _presented(letter.event.lease_id),
                str(letter.event.seq),
                letter.event.payload,
            ]
            for letter in at.transcript.dead_letters
        ]
        seen = {
            "streams": [
                {self.names.of(one, entry): dict(fields) for entry, fields in at.streams[one].entries.items()}
                for one in Group
            ],
            "pending": [
                {self.names.of(one, entry): given.consumer for entry, given in at.streams[one].pending.items()}
                for one in Group
            ],
            "dead": sorted(letters + [[one["reason"], one["content"]] for one in at.dead]),
            "desks": [at.desks[desk].in_flight for desk in (MODEL_DESK, JUDGE_DESK)],
            "undone": [at.plane.undone[plane] for plane in Plane],
            **shown.named(self.names),
            "history": [self.names.record(one) for one in at.history[self._recorded :]],
        }
        self._recorded = len(at.history)
        return seen

    async def forge(self, group: Group, fields: Mapping[str, str]) -> None:
        self.world.batches[self.spec.batch].streams[group].add(fields)

    async def lose_group(self, group: Group, *, at_end: bool) -> None:
        self.world.batches[self.spec.batch].streams[group].lose_group(at_end=at_end)

    async def set_clock(self, ms: int) -> None:
        self._clock.ms = ms

    async def expire(self, run: RunId, place: str, since: int) -> None:
        desk = self.world.batches[self.spec.batch].desk
        desk.now_ms = since
        assert desk.expire(lease=place).verb == "commit"


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the port itself shows."""

    counters: Counters
    runs: list[RunId]
    parked: list[RunId]
    rows: list[RunRow]
    undelivered: int | None = None
    transcripts: list[list[Event]] | None = None
    by_their_heads: list[list[Event]] | None = None
    ends: list[RunEnd] | None = None
    effects: list[list[IntentRow]] | None = None

    @classmethod
    async def by(cls, bus: Bus, spec: BatchSpec, group: Group | None) -> _Shown:
        """Everything asked for at once: it is asked for after every step. Without a group, what is cheap."""
        runs = [RunId(f"c{n}#1") for n in range(spec.intended + 1)]
        counters, run_ids, parked, rows = await asyncio.gather(
            bus.counters(spec.batch), bus.run_ids(spec.batch), bus.parked(spec.batch), bus.rows(spec.batch, runs)
        )
        if group is None:
            return cls(counters, run_ids, parked, rows)
        undelivered, transcripts, by_their_heads, ends, effects = await asyncio.gather(
            bus.undelivered(spec.batch, group),
            asyncio.gather(*(bus.transcript(spec.batch, run) for run in runs)),
            asyncio.gather(*(bus.transcript(spec.batch, row.run, Digest(row.head)) for row in rows)),
            bus.ends(spec.batch, runs),
            asyncio.gather(*(bus.effects(spec.batch, run) for run in runs)),
        )
        return cls(counters, run_ids, parked, rows, undelivered, transcripts, by_their_heads, ends, effects)

    def named(self, names: Names) -> dict[str, object]:
        """By what it is, with the shared names."""
        shown = {one.name: getattr(self, one.name) for one in fields(self)}
        return {**shown, "rows": [names.row(row) for row in self.rows]}


def _read_args(named: Mapping[str, object]) -> dict[str, object]:
    """A tool's arguments are opaque text to the server, and an object to the model."""
    found = dict(named)
    text = found.get("args")
    if isinstance(text, list):  # an envelope holds no objects: see `bus.envelopes`
        [text] = text
    if isinstance(text, str):
        found["args"] = json.loads(text)
    return found


def _presented(name: str) -> str:
    return name.partition("~")[0]


def _fields(flat: Sequence[bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _dead(flat: Sequence[bytes]) -> list[str]:
    letter = _fields(flat)
    if "stream" in letter:  # an entry that could not be read
        return [letter["reason"], letter["content"]]
    return list(letter.values())


class TwinsDifferError(AssertionError):
    """The same step came out differently."""


class Twins:
    """See the module's text."""

    def __init__(self, server: ServerSide, memory: MemorySide) -> None:
        self.server, self.memory = server, memory
        self.seen: dict[str, object] = {}
        """What both showed after the last step."""

    async def both(
        self, call: Callable[[Side], Awaitable[object]], group: Group = Group.WORKER, *, whole: bool = True
    ) -> object:
        """Make one step, of a role of `group`, on both sides; the server's result. Raises TwinsDifferError.

        `whole`: compare also what is dearer to read than it is likely to change, transcripts and backlogs.
        """
        sides: tuple[Side, Side] = (self.server, self.memory)
        results = [await call(side) for side in sides]
        seen = [await side.look(group if whole else None) for side in sides]
        for side, result, look in zip(sides, results, seen, strict=True):
            look["result"] = side.names.result(result, group)
        server, memory = seen
        for what, there in server.items():
            if there != memory[what]:
                raise TwinsDifferError(f"{what}\n  server {there}\n  memory {memory[what]}")
        self.seen = server
        return results[0]
