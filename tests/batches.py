"""One batch on a real server, and short ways to bring a run where a test wants it.

batch = await Batch.open(server.address(), runs=3)
await batch.admit()
held = await batch.claimed()                 # an entry was delivered to w1 and claimed
async with batch.unchanged():                # what is refused leaves nothing behind but its record
    …
await batch.check()                          # the counters say what the rows say
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bus.chain import EMPTY_HEAD, next_head
from bus.entries import Entries
from bus.errors import ReplyError
from bus.keys import BatchKeys, bell, registry
from bus.link import Door
from bus.port import BatchSpec, Entry, Group, Judgement, NextRuns, Ref
from bus.recorded import Part
from bus.redis_bus import RedisBus
from bus.replies import hash_of
from bus.snapshot import Snapshot
from bus.types import BatchId, ConsumerId, Decision, Digest, Durability, EntryId, Gen, LeaseId, Plane, RunId
from bus.wire import Address, Reply, Wire
from workers.runtime import SystemRuntime

__all__ = ["Batch", "FixedDoor", "Held", "Record", "Scoring", "opened", "refused"]

W1, W2 = ConsumerId("w1"), ConsumerId("w2")
S1, S2 = ConsumerId("s1"), ConsumerId("s2")
P1 = ConsumerId("p1")

ENDED = ("scored", "hole")


@dataclass(frozen=True, slots=True)
class FixedDoor:
    """`bus.link.Door` of a server that is not ours to start."""

    where: Address
    is_watched: bool = False
    is_ours: bool = False

    def address(self) -> Address:
        """Where it is."""
        return self.where

    async def ensure(self) -> bool:
        """Nothing to do."""
        return False


@dataclass(frozen=True, slots=True)
class Held:
    """A run that a worker has claimed."""

    entry: Entry
    ref: Ref
    decision: Decision


@dataclass(frozen=True, slots=True)
class Scoring:
    """A sealed run that a scorer has claimed, and what it would sign."""

    entry: Entry
    ref: Ref
    judgement: Judgement
    decision: Decision


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of the history."""

    command: str
    run: str | None
    verbs: tuple[str, ...]
    """`histogram.score commit`, `run.claim reject not_owner`: one a part."""


@contextlib.asynccontextmanager
async def opened(
    address: Address, *, runs: int = 3, through: Address | None = None, name: str = "b", **spec: object
) -> AsyncIterator[Batch]:
    """A declared batch, let go at the end; what a test leaves behind is checked when the test itself has passed."""
    batch = await Batch.open(address, runs=runs, through=through, name=name, **spec)  # type: ignore[arg-type]
    try:
        yield batch
        await batch.check()
    finally:
        await batch.aclose()


@contextlib.asynccontextmanager
async def one_over_another(address: Address) -> AsyncIterator[tuple[Batch, Batch]]:
    """A closed batch of one run, and one that is to score what it sealed, and has adopted it."""
    async with contextlib.AsyncExitStack() as stack:
        first = await Batch.open(address, runs=1, name="first")
        stack.push_async_callback(first.aclose)
        await first.admit()
        await first.scored()
        await first.closed()
        second = await Batch.open(address, runs=1, name="second", source="first")
        stack.push_async_callback(second.aclose)
        adopted = await second.bus.adopt(
            second.name, first.name, NextRuns(0, first.runs, [], P1, "candidate", "strict")
        )
        assert adopted.applied
        yield first, second


async def calls_of(wire: Wire) -> Counter[str]:
    """How often the server has executed each command since its start, those inside scripts included."""
    stats = (await wire.call("INFO", "commandstats")).decode()
    return Counter({name: int(calls) for name, calls in re.findall(r"cmdstat_(\S+?):calls=(\d+)", stats)})


def refused(decision: Decision) -> str:
    """`reject not_owner (run.claim)`; fails for a decision that was applied."""
    assert not decision.applied, decision
    return str(decision)


@dataclass(slots=True)
class Batch:
    """See the module's text. Everything is named: `c0#1` is the first run, L1 the first lease that is drawn."""

    bus: RedisBus
    wire: Wire
    """A connection of the test's own, to look and to meddle."""
    spec: BatchSpec
    keys: BatchKeys
    leases: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @classmethod
    async def open(
        cls,
        address: Address,
        *,
        runs: int = 3,
        through: Address | None = None,
        door: Door | None = None,
        name: str = "b",
        plane: Plane = Plane.LIVE,
        durability: Durability = Durability.RELAXED,
        **spec: object,
    ) -> Batch:
        """Declare a batch. `through`, or `door`: where the bus connects, when it is not the server itself."""
        declared = BatchSpec(
            batch=BatchId(name),
            suite="suite",
            suite_digest=Digest("d" * 64),
            suite_path="/suite",
            intended=runs,
            quorum=1,
            bins=("pass", "fail"),
            bound=64,
            max_in_flight=64,
            max_deliveries=3,
            lease_ms=1_000,
        )
        wanted = replace(declared, **spec)  # type: ignore[arg-type]
        bus = RedisBus(door or FixedDoor(through or address), SystemRuntime(), plane=plane, durability=durability)
        batch = cls(bus, await Wire.open(address), wanted, bus.keys(wanted.batch))
        await bus.create(wanted)
        return batch

    async def aclose(self) -> None:
        """Let go of the connections."""
        await self.bus.aclose()
        self.wire.close()

    # --- short ways --------------------------------------------------------------------------------------

    @property
    def name(self) -> BatchId:
        """The batch's id."""
        return self.spec.batch

    @property
    def runs(self) -> list[RunId]:
        """Every run of the batch."""
        return [RunId(f"c{n}#1") for n in range(self.spec.intended)]

    def lease(self) -> LeaseId:
        """A lease id that nobody had."""
        return LeaseId(f"L{next(self.leases)}")

    async def admit(self, count: int | None = None, read: Sequence[Entry] = ()) -> Decision:
        """The next runs from the cursor on: as many as there are, or `count`."""
        cursor = int(await self.batch_field("cursor"))
        ahead = self.runs[cursor:] if count is None else self.runs[cursor : cursor + count]
        return await self.bus.admit(self.name, NextRuns(cursor, ahead, read, P1, "candidate", "judge"))

    async def delivered(self, consumer: ConsumerId = W1, group: Group = Group.WORKER) -> Entry:
        """The next new entry of a group, given to `consumer`."""
        entries = await self.bus.read(group, consumer, [self.name], 1, 1)
        assert entries, f"nothing to read for {group}"
        return entries[0]

    async def taken(self, entry: Entry, consumer: ConsumerId) -> Entry:
        """A pending entry, given to another consumer as XAUTOCLAIM would after its idle time."""
        stream = self.keys.stream(entry.group.stream)
        await self.wire.call("XCLAIM", stream, entry.group.on_server, consumer, 0, entry.id)
        return entry

    async def claimed(self, consumer: ConsumerId = W1, entry: Entry | None = None) -> Held:
        """A run in a worker's hands."""
        entry = entry or await self.delivered(consumer)
        lease_id = self.lease()
        decision = await self.bus.claim(entry, lease_id, consumer)
        assert decision.applied, decision
        said = decision.answer
        ref = Ref(self.name, entry.run, lease_id, Gen(said["gen"]), said["conversation"], said["epoch"])
        return Held(entry, ref, decision)

    async def forged(self, run: RunId, consumer: ConsumerId = W1, group: Group = Group.WORKER) -> Entry:
        """A second message of the same content, as a retried XADD leaves it, delivered to `consumer`."""
        forged = (await self.wire.call("XADD", self.keys.stream(group.stream), "*", "run", run)).decode()
        while (entry := await self.delivered(consumer, group)).id != forged:
            pass
        return entry

    async def end(self, run: RunId) -> None:
        """End a run as an operator would, wherever it stands."""
        row = await self.row(run)
        if row["state"] in ("queued", "running"):
            ref = Ref(self.name, run, LeaseId(""), Gen(int(row.get("t.gen", "0"))))
            decision = await self.bus.hole(ref, "operator", "")
        else:
            ref = Ref(self.name, run, LeaseId(""), Gen(int(row.get("h.epoch", "0"))))
            decision = await self.bus.score_hole(ref, "operator", "")
        assert decision.applied, decision

    async def seal(self, held: Held, answer: str = "answer") -> Decision:
        """End a held run with an answer; it appended nothing before."""
        return await self.bus.seal(held.ref, EMPTY_HEAD, 1, answer, "", "")

    async def sealed(self) -> Held:
        """The next run, claimed by w1 and sealed."""
        held = await self.claimed()
        decision = await self.seal(held)
        assert decision.applied, decision
        return held

    async def scoring(self, consumer: ConsumerId = S1, entry: Entry | None = None) -> Scoring:
        """The next sealed run in a scorer's hands."""
        entry = entry or await self.delivered(consumer, Group.SCORER)
        lease_id = self.lease()
        decision = await self.bus.score_claim(entry, lease_id, consumer)
        assert decision.applied, decision
        answer = decision.answer
        judgement = Judgement(
            answer["head"],
            answer["tree_hash"],
            answer["candidate"],
            answer["judge"],
            answer["judge_epoch"],
            "pass",
            "1",
        )
        return Scoring(entry, Ref(self.name, entry.run, lease_id, Gen(answer["epoch"])), judgement, decision)

    async def scored(self) -> Scoring:
        """The next run, through every step to its score."""
        await self.sealed()
        scoring = await self.scoring()
        decision = await self.bus.score(scoring.ref, scoring.judgement)
        assert decision.applied, decision
        return scoring

    async def closed(self) -> Snapshot:
        """Close over the rows, as a planner does when all its runs have ended: inconclusive, if too few were scored."""
        rows = await self.bus.rows(self.name, await self.bus.run_ids(self.name))
        snapshot = Snapshot.from_rows(rows, self.spec)
        decision = await self.bus.close(self.name, snapshot.snapshot_id, snapshot.accepted)
        enough = snapshot.accepted >= self.spec.quorum
        assert decision.applied if enough else decision.reason == "below_quorum", decision
        return snapshot

    # --- looking -----------------------------------------------------------------------------------------

    async def row(self, run: RunId) -> dict[str, str]:
        """A run's hash."""
        return await self._hash(self.keys.run(run))

    async def state(self, run: RunId) -> str:
        """A run's state."""
        return (await self.row(run))["state"]

    async def batch_field(self, name: str) -> str:
        """One field of the batch's hash, "0" when it has none."""
        return (await self._hash(self.keys.batch_row)).get(name, "0")

    async def refusals(self) -> dict[str, int]:
        """The batch's refusals by reason."""
        return dict((await self.bus.counters(self.name)).refusals)

    async def pending(self, group: Group) -> dict[str, str]:
        """Entry → owner, of everything that a group has pending."""
        found = await self.wire.call("XPENDING", self.keys.stream(group.stream), group.on_server, "-", "+", 1000)
        return {entry.decode(): owner.decode() for entry, owner, *_ in found}

    async def waiting(self, group: Group) -> list[str]:
        """The runs whose entries are in a group's stream, pending or not."""
        found = await self.wire.call("XRANGE", self.keys.stream(group.stream), "-", "+")
        return [flat[1].decode() for _, flat in found]

    async def idle_ms(self, entry: EntryId, group: Group = Group.WORKER) -> int:
        """How long a pending entry's owner has been silent."""
        stream = self.keys.stream(group.stream)
        found = await self.wire.call("XPENDING", stream, group.on_server, entry, entry, 1)
        return int(found[0][2])

    async def dead(self) -> list[dict[str, str]]:
        """The dead letters."""
        found = await self.wire.call("XRANGE", self.keys.dead, "-", "+")
        return [hash_of(flat) for _, flat in found]

    async def history(self, command: str | None = None) -> list[Record]:
        """The history, oldest first; of one command when it is named."""
        records = []
        found = await self.wire.call("XRANGE", self.keys.history, "-", "+")
        for entry in await Entries(self.bus.link, self.keys).read(found):
            if command in (None, entry.command):
                run = entry.envelope.get("run")
                run = run if isinstance(run, str) else None
                records.append(Record(entry.command, run, tuple(map(_verb, entry.parts))))
        return records

    async def commits(self, command: str, run: RunId | None = None) -> int:
        """How often a command was applied: once, however often it was sent."""
        return sum(
            all(verb.split()[1] == "commit" for verb in record.verbs)
            for record in await self.history(command)
            if run is None or record.run == run
        )

    @contextlib.asynccontextmanager
    async def unchanged(self) -> AsyncIterator[None]:
        """What happens inside leaves the state as it was: only history, dead letters and refusal counters may grow."""
        before = await self._state()
        yield
        assert await self._state() == before

    async def check(self) -> None:
        """Every counter says what the rows say, and nothing was written beside the batch's own keys."""
        keys = await self._keys()
        prefix = self.keys.batch_row.removesuffix("batch")
        assert {key for key in keys if not key.startswith(prefix)} <= {
            registry(self.keys.plane),
            bell(self.keys.plane),
        }
        batch = await self._hash(self.keys.batch_row)
        desk = await self._hash(self.keys.desk())
        marker = self.keys.run(RunId(""))
        rows = {RunId(key.removeprefix(marker)): await self._hash(key) for key in keys if key.startswith(marker)}

        assert _family(batch, "n:") == Counter(row["state"] for row in rows.values())
        assert _family(batch, "hole:") == Counter(row["h.why"] for row in rows.values() if "h.why" in row)
        assert _family(batch, "bin:") == Counter(row["h.bin"] for row in rows.values() if "h.bin" in row)
        states = [row["state"] for row in rows.values()]
        assert int(batch.get("accepted", "0")) == sum(_family(batch, "bin:").values()) == states.count("scored")
        assert int(batch.get("holes", "0")) == states.count("hole")
        in_flight = [row for row in rows.values() if "h.epoch" in row and row["state"] not in ENDED]
        assert int(batch.get("fenced", "0")) == len(in_flight)
        admitted = [row for row in rows.values() if "place" in row and row["state"] not in ENDED]
        at_desk = [name for name in desk if name.startswith("l:")]
        assert int(desk.get("in_flight", "0")) == len(at_desk) == len(admitted)
        index = await self.wire.call("LRANGE", self.keys.index, 0, -1)
        assert sorted(run.decode() for run in index) == sorted(rows)
        assert int(batch.get("cursor", "0")) == len(rows)
        lease_of = {"running": "lease", "scoring": "s.lease"}  # elsewhere it may stand there, and counts no more
        assert all(lease_of[row["state"]] in row for row in rows.values() if row["state"] in lease_of)
        free = [row for row in rows.values() if row["state"] in ("queued", "hole")]
        assert not [row for row in free for lease in ("t.lease", "c.lease") if lease in row]
        planes = await self._hash(self.keys.planes)
        places = [row["place"] for row in admitted]
        assert sorted(planes[name] for name in planes if name.endswith(":result")) == sorted(places)
        await self._check_effects(batch, rows)
        await self._check_entries(rows)
        await self._check_chains(rows)
        assert _family(batch, "refused:") == await self._refusals_in_history()

    # --- the checks' parts -------------------------------------------------------------------------------

    async def _check_effects(self, batch: Mapping[str, str], rows: Mapping[RunId, Mapping[str, str]]) -> None:
        """What is counted is what the rows say; who waits for an executor has the one message that counts."""
        states = {
            (run, field.removeprefix("o.i:")): text.split()[0]
            for run, row in rows.items()
            for field, text in row.items()
            if field.startswith("o.i:")
        }
        waiting = {name for name, state in states.items() if state in ("queued", "executing", "awaiting_ack")}
        undone = [name for name, state in states.items() if state == "compensating"]
        assert int(batch.get("effects_open", "0")) == len(waiting) + len(undone)
        stuck = [name for (_, name), state in states.items() if state == "stuck" and not name.endswith("~undo")]
        assert int(batch.get("stuck", "0")) == len(stuck)
        named = {
            (run, field.removeprefix("o.e:")): entry
            for run, row in rows.items()
            for field, entry in row.items()
            if field.startswith("o.e:")
        }
        assert named.keys() == waiting
        for (run, intent), entry in named.items():
            found = await self.wire.call("XRANGE", self.keys.stream("tools"), entry, entry)
            told = {"run": run, "intent": intent, "tool": rows[run][f"o.t:{intent}"]}
            assert [hash_of(flat) for _, flat in found] == [told]
        planes = await self._hash(self.keys.planes)
        in_flight = {key.split(":", 3)[3] for key in planes if key.startswith("k:") and not key.endswith(":result")}
        assert in_flight == {name for (_, name), state in states.items() if state == "awaiting_ack"}

    async def _check_entries(self, rows: Mapping[RunId, Mapping[str, str]]) -> None:
        """A run that waits for somebody has its message in the stream, unless its score is parked."""
        parked = {item.decode() for item in await self.wire.call("SMEMBERS", self.keys.review)}
        streams = {"queued": "runs", "running": "runs", "sealed": "scores", "scoring": "scores"}
        for run, row in rows.items():
            if row["state"] in ENDED or run in parked:
                continue
            stream = self.keys.stream(streams[row["state"]])
            found = await self.wire.call("XRANGE", stream, row["entry"], row["entry"])
            assert [flat[1].decode() for _, flat in found] == [run], (run, row)

    async def _check_chains(self, rows: Mapping[RunId, Mapping[str, str]]) -> None:
        for run, row in rows.items():
            events = await self.bus.transcript(self.name, run)
            head = EMPTY_HEAD
            for event in events:
                head = next_head(head, event.payload)
            assert [event.seq for event in events] == list(range(1, int(row.get("t.len", "0")) + 1))
            assert row.get("t.head", EMPTY_HEAD) == head

    async def _refusals_in_history(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for record in await self.history():
            for verb in record.verbs:
                words = verb.split()
                if words[1] in ("reject", "replay"):
                    found[words[2]] += 1
        return found

    async def _keys(self) -> list[str]:
        return sorted(key.decode() for key in await self.wire.call("KEYS", "*"))

    async def _hash(self, key: str) -> dict[str, str]:
        return hash_of(await self.wire.call("HGETALL", key))

    async def _state(self) -> dict[str, Reply]:
        state: dict[str, Reply] = {}
        for key in await self._keys():
            if key in (self.keys.history, self.keys.dead):
                continue
            kind = (await self.wire.call("TYPE", key)).decode()
            if kind == "hash":
                content = await self._hash(key)
                state[key] = {name: value for name, value in content.items() if not name.startswith("refused:")}
            elif kind == "stream":
                state[key] = await self.wire.call("XRANGE", key, "-", "+")
            else:
                state[key] = await self.wire.call(*{"set": ("SMEMBERS", key), "list": ("LRANGE", key, 0, -1)}[kind])
        for group in Group:
            with contextlib.suppress(ReplyError):
                state[f"pending {group}"] = await self.pending(group)
        return state


def _family(fields: Mapping[str, str], prefix: str) -> Counter[str]:
    """The counters of one family; those at zero say nothing."""
    found = {name.removeprefix(prefix): int(value) for name, value in fields.items() if name.startswith(prefix)}
    return Counter({name: count for name, count in found.items() if count})


def _verb(part: Part) -> str:
    return " ".join(word for word in (f"{part.fence}.{part.op}", part.verb, part.reason) if word)
