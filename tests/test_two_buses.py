"""The bus in memory against the bus on a server: seeded random sessions of the same steps, compared after each.

Whatever the roles, their late ghosts and an operator may ask of a batch is drawn: what fits, and what comes twice, too
late, from the wrong consumer, for another run or under a forged prefix. After each step the two must agree on the
decision, on everything that the port shows, on the streams and who holds what, on the dead letters, and on what was
written to the history. A difference is a bug on one side, and the failure says after which steps of which seed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import pytest
import structlog

from bus.chain import EMPTY_HEAD, next_head
from bus.memory_bus import MemoryBus, MemoryWorld
from bus.port import BatchSpec, Counters, Entry, Group, Held, Judgement, Ref, RunRow, RunState
from bus.redis_bus import RedisBus
from bus.snapshot import Snapshot
from bus.target import Target
from bus.types import BatchId, ConsumerId, Decision, Digest, Gen, LeaseId, RunId
from bus.wire import Wire
from tests.batches import FixedDoor
from tests.soak import times
from tests.twins import CountedTokens, MemorySide, ServerSide, Side, Twins, TwinsDifferError

SESSIONS, STEPS, AFTER_CLOSE = times(120), 60, 12
CONSUMERS = [ConsumerId(name) for name in ("c1", "c2", "c3")]
WORKER_STATES = (RunState.QUEUED, RunState.RUNNING)
SCORER_STATES = (RunState.SEALED, RunState.SCORING)
UNCLAIMED = (RunState.QUEUED, RunState.SEALED)
NO_ROW = RunRow(RunId(""), RunState.HOLE, 0, 0, 0, "none", EMPTY_HEAD, 0, 0, "", "", "", "", "")

WANTED = """
create: commit, duplicate, reject batch_mismatch
admit: commit, duplicate, reject schema, reject after_close, reject bound_full, reject step_in_flight,
    reject step_committed, reject already_bound
abandon: commit, duplicate, reject schema, reject after_close
claim: commit, duplicate, reject schema, reject lease_reused, reject not_owner, reject ended, reject duplicate_entry,
    reject poison
heartbeat: commit, reject stale_lease
append: commit, duplicate, reject schema, reject run_mismatch, reject stale_gen, reject lease_mismatch, reject sealed,
    reject forged_prefix, reject seq_gap
seal: commit, duplicate, reject schema, reject stale_gen, reject lease_mismatch, reject forged_prefix, reject seq_gap,
    reject run_mismatch
give_back: commit, duplicate, reject stale_lease
hole: commit, duplicate, reject stale_lease
score_claim: commit, duplicate, reject lease_reused, reject not_owner, reject ended, reject duplicate_entry,
    reject judge_failed, reject backpressure
score: commit, duplicate, reject schema, reject stale_lease, reject unbound, reject stale_epoch, reject digest_mismatch,
    reject stale_gen, reject judge_mismatch, reject candidate_mismatch, replay judge_mismatch,
    replay candidate_mismatch, in_doubt judge_mismatch, in_doubt candidate_mismatch
score_give_back: commit, duplicate, reject stale_lease
score_hole: commit, duplicate, reject stale_lease
requeue: commit, duplicate, reject ended, reject still_known
rebind: commit, reject stale_epoch, reject ended, reject after_close
sweep: commit
close: commit, duplicate, reject below_quorum, in_doubt not_drained, in_doubt in_flight
"""


def wanted() -> set[str]:
    """Every decision that must have come up: `claim reject poison`."""
    lines = WANTED.strip().replace(",\n   ", ",").splitlines()
    return {f"{line.split(':')[0]} {word.strip()}" for line in lines for word in line.split(":")[1].split(",")}


@dataclass(frozen=True, slots=True)
class Message:
    """An entry that was seen once, under the name that both sides share."""

    name: str
    group: Group
    run: RunId

    def on(self, side: Side, batch: BatchId) -> Entry:
        """As this side delivered it."""
        return Entry(batch, self.group, side.names.id_of(self.name), self.run, {"run": self.run})


class Session:
    """One batch, and a memory of what was ever handed out in it: the material of late and repeated messages."""

    def __init__(self, twins: Twins, spec: BatchSpec, rng: random.Random, seen: Counter[str]) -> None:
        self.twins, self.spec, self.rng, self.seen = twins, spec, rng, seen
        self.batch = spec.batch
        self.runs = [RunId(f"c{n}#1") for n in range(spec.intended + 1)]  # one more than was declared
        self.steps: list[str] = []
        self.messages: dict[str, Message] = {}
        self.claims: list[tuple[Message, LeaseId, ConsumerId]] = []
        self.held: list[Ref] = []
        self.scoring: list[tuple[Ref, Judgement]] = []
        self.repeats: list[tuple[str, Callable[[Side], Awaitable[Decision]], Group]] = []
        self.leases = 0
        self.rows: dict[RunId, RunRow] = {}

    # --- what both sides show ------------------------------------------------------------------------------

    def row(self, run: RunId) -> RunRow:
        """One run's row, or one that says that there is none."""
        return self.rows.get(run, NO_ROW)

    @property
    def counters(self) -> Counters:
        """The batch's counters."""
        return cast("Counters", self.twins.seen["counters"])

    def stream(self, group: Group) -> Mapping[str, str]:
        """Message → run, of what has not been handled."""
        return cast("Sequence[Mapping[str, str]]", self.twins.seen["streams"])[list(Group).index(group)]

    def pending(self, group: Group) -> Mapping[str, str]:
        """Message → owner."""
        return cast("Sequence[Mapping[str, str]]", self.twins.seen["pending"])[list(Group).index(group)]

    # --- making a step -------------------------------------------------------------------------------------

    async def step(self, what: str, call: Callable[[Side], Awaitable[object]], group: Group = Group.WORKER) -> object:
        """One step on both sides, compared."""
        whole = what.startswith(("append", "seal")) or len(self.steps) % 5 == 0
        self.steps.append(what)
        result = await self.twins.both(call, group, whole=whole)
        self.rows = {row.run: row for row in cast("Sequence[RunRow]", self.twins.seen["rows"])}
        for one in Group:
            for name, run in self.stream(one).items():
                self.messages.setdefault(name, Message(name, one, RunId(run)))
        return result

    async def command(
        self, name: str, what: str, call: Callable[[Side], Awaitable[Decision]], group: Group = Group.WORKER
    ) -> Decision:
        """A step that decides. It may be sent once more, now or much later."""
        decision = cast("Decision", await self.step(f"{name} {what}", call, group))
        self.steps[-1] += f" → {decision}"
        self.seen[f"{name} {decision.verb}" + (f" {decision.reason}" if decision.reason else "")] += 1
        self.repeats.append((f"{name} {what}", call, group))
        return decision

    def often(self, chance: float) -> bool:
        """True with this chance."""
        return self.rng.random() < chance

    def run(self, *states: RunState) -> RunId:
        """A run, mostly in one of these states."""
        fitting = [run for run, row in self.rows.items() if row.state in states]
        return self.rng.choice(fitting) if fitting and self.often(0.9) else self.rng.choice(self.runs)

    def lease(self) -> LeaseId:
        """A new lease id; seldom one that was used."""
        if self.held and self.often(0.04):
            return self.rng.choice(self.held).lease_id
        self.leases += 1
        return LeaseId(f"L{self.leases}")

    # --- the steps -----------------------------------------------------------------------------------------

    async def again(self) -> None:
        """Any command that was sent before, once more: a resend, or a ghost of long ago."""
        if self.repeats:
            of_each = {what.split(" ")[0]: (what, call, group) for what, call, group in self.repeats}  # the last one
            what, call, group = self.rng.choice(list(of_each.values()) if self.often(0.7) else self.repeats)
            name, _, rest = what.partition(" ")
            await self.command(name, f"again: {rest.removeprefix('again: ')}", call, group)

    async def create(self) -> None:
        other = replace(self.spec, quorum=self.spec.quorum + 1)
        spec = self.spec if self.often(0.5) else other
        await self.command("create", "the same" if spec is self.spec else "another", lambda side: side.bus.create(spec))

    async def admit(self) -> None:
        cursor, size = self.counters.cursor, self.rng.randint(0, 3)
        runs = self.runs[cursor : cursor + size]
        if self.often(0.1):
            runs = self.rng.choices(self.runs, k=2)
        if self.often(0.1):
            cursor += self.rng.choice([-1, 1]) if cursor else 1
        read = [self.messages[name] for name in self.pending(Group.PLANNER)] if self.often(0.5) else []
        if self.often(0.03):
            read = [Message("no entry", Group.PLANNER, self.runs[0])]
        await self.command(
            "admit",
            f"{runs} at {cursor}, {len(read)} read",
            lambda side: side.bus.admit(
                self.batch, cursor, runs, [one.on(side, self.batch) for one in read], CONSUMERS[0], "cand", "judge"
            ),
        )

    async def abandon(self) -> None:
        cursor = self.counters.cursor + (1 if self.often(0.1) else 0)
        runs = self.runs[cursor : cursor + self.rng.randint(0, 2)]
        if self.often(0.2):
            runs = self.rng.choices(self.runs, k=1)
        call = f"{runs} at {cursor}"
        await self.command("abandon", call, lambda side: side.bus.abandon(self.batch, cursor, runs, "budget"))

    async def read(self) -> None:
        ready = [group for group in Group if len(self.stream(group)) > len(self.pending(group))]
        await self.read_of(self.rng.choice(ready if ready and self.often(0.8) else list(Group)))

    async def read_of(self, group: Group) -> None:
        consumer = self.rng.choice(CONSUMERS)
        how, count = self.rng.choice(["new"] * 5 + ["idle", "own"]), self.rng.randint(1, 2)

        def call(side: Side) -> Awaitable[list[Entry]]:
            if how == "new":
                return side.bus.read(group, consumer, [self.batch], count, 1)
            if how == "idle":
                return side.bus.take_idle(group, consumer, [self.batch], count, 0)
            return side.bus.own_pending(group, consumer, [self.batch], count)

        await self.step(f"{how} {group} entries to {consumer}", call, group)

    async def claim(self) -> None:
        await self.claim_of(Group.WORKER)

    async def score_claim(self) -> None:
        await self.claim_of(Group.SCORER)

    async def claim_of(self, group: Group) -> None:
        pending, consumer = self.pending(group), self.rng.choice(CONSUMERS)
        old = [message for message in self.messages.values() if message.group is group]
        if not pending and self.often(0.8):
            await self.read_of(group)
            return
        if pending and self.often(0.85):
            unclaimed = [name for name in pending if self.row(self.messages[name].run).state in UNCLAIMED]
            message = self.messages[self.rng.choice(unclaimed if unclaimed and self.often(0.85) else list(pending))]
            consumer = ConsumerId(pending[message.name]) if self.often(0.9) else consumer
        elif old and self.often(0.8):
            message = self.rng.choice(old)
        else:
            message = Message("1-1" if self.often(0.5) else "none", group, self.run())
        await self.claimed(message, self.lease(), consumer)

    async def claimed(self, message: Message, lease_id: LeaseId, consumer: ConsumerId) -> None:
        name = "claim" if message.group is Group.WORKER else "score_claim"

        def call(side: Side) -> Awaitable[Decision]:
            method = side.bus.claim if message.group is Group.WORKER else side.bus.score_claim
            return method(message.on(side, self.batch), lease_id, consumer)

        what = f"{message.name} ({message.run}) as {lease_id} by {consumer}"
        decision = await self.command(name, what, call, message.group)
        if not decision.applied:
            return
        answer = decision.answer
        if name == "claim":
            self.held.append(Ref(self.batch, message.run, lease_id, Gen(answer["gen"])))
        else:
            ref = Ref(self.batch, message.run, lease_id, Gen(answer["epoch"]))
            bound = Judgement(
                answer["head"], "", answer["candidate"], answer["judge"], answer["judge_epoch"], "pass", "1"
            )
            self.scoring.append((ref, bound))

    def is_live(self, ref: Ref, state: RunState, gen: int) -> bool:
        """Whether a token is the one that counts."""
        return self.row(ref.run).state is state and ref.gen == gen

    def holder(self) -> Ref:
        """A live token, one that was, or one that is made up of two."""
        live = [ref for ref in self.held if self.is_live(ref, RunState.RUNNING, self.row(ref.run).gen)]
        ref = self.rng.choice(live[-3:] if live and self.often(0.85) else self.held)
        return self.mixed(ref, self.held)

    def mixed(self, ref: Ref, others: Sequence[Ref]) -> Ref:
        if self.often(0.9):
            return ref
        other = self.rng.choice(others)
        return self.rng.choice(
            [
                replace(ref, lease_id=other.lease_id),
                replace(ref, lease_id=LeaseId("nobody's")),
                replace(ref, gen=Gen(ref.gen + 1)),
                replace(ref, gen=Gen(0)),
                replace(ref, run=other.run),
            ]
        )

    async def heartbeat(self) -> None:
        group, consumer = self.rng.choice([Group.WORKER, Group.SCORER]), self.rng.choice(CONSUMERS)
        refs = self.held if group is Group.WORKER else [ref for ref, _ in self.scoring]
        held = list(dict.fromkeys(self.rng.choices(refs[-2:], k=2))) if refs else []
        waiting = [self.messages[name] for name in self.pending(group)][:2] if self.often(0.5) else []

        async def call(side: Side) -> list[Decision]:
            entries = [one.on(side, self.batch) for one in waiting]
            return await side.bus.heartbeat(group, consumer, Held(held, entries))

        result = await self.step(f"heartbeat of {consumer}: {[ref.lease_id for ref in held]}", call, group)
        for decision in cast("list[Decision]", result):
            self.seen[f"heartbeat {decision.verb}" + (f" {decision.reason}" if decision.reason else "")] += 1

    def prefix(self, run: RunId) -> tuple[Digest, int]:
        """The committed prefix as its holder would name it; seldom a forged one, or a gap."""
        row = self.row(run)
        parent, seq = Digest(row.head), row.length + 1
        if self.often(0.1):
            parent = next_head(parent, "forged")
        if self.often(0.1):
            seq = max(1, seq + self.rng.choice([-1, 1]))
        return parent, seq

    async def append(self) -> None:
        if self.held:
            ref = self.holder()
            (parent, seq), texts = self.prefix(ref.run), [f"event {n}" for n in range(self.rng.choice([0, 1, 1, 2]))]
            what = f"{len(texts)} to {ref} at {seq} after {parent[:6]}"
            await self.command("append", what, lambda side: side.bus.append(ref, parent, seq, texts))

    async def seal(self) -> None:
        if self.held:
            ref = self.holder()
            parent, seq = self.prefix(ref.run)
            text, tree = "" if self.often(0.03) else "answer", self.rng.choice(["", "tree"])
            what = f"{ref} at {seq} after {parent[:6]}"
            await self.command("seal", what, lambda side: side.bus.seal(ref, parent, seq, text, tree, tree and "blob"))

    async def give_back(self) -> None:
        if self.held:
            ref = self.holder()
            await self.command("give_back", str(ref), lambda side: side.bus.give_back(ref))

    async def hole(self) -> None:
        if self.held and self.often(0.7):
            ref = self.holder()
        else:
            run = self.run(*WORKER_STATES)
            ref = Ref(self.batch, run, LeaseId(""), Gen(self.row(run).gen))
        why = self.rng.choice(["solver_error", "operator"])
        await self.command("hole", f"{ref} {why}", lambda side: side.bus.hole(ref, why, "detail"))

    def scorer(self) -> tuple[Ref, Judgement]:
        """As `holder`, for a score."""
        live = [
            (ref, bound) for ref, bound in self.scoring if self.is_live(ref, RunState.SCORING, self.row(ref.run).epoch)
        ]
        ref, judgement = self.rng.choice(live[-3:] if live and self.often(0.9) else self.scoring)
        return self.mixed(ref, [ref for ref, _ in self.scoring]), judgement

    async def score(self) -> None:
        if not self.scoring:
            return
        ref, judgement = self.scorer()
        if self.often(0.35):
            judgement = self.rng.choice(
                [
                    *[replace(judgement, judge="another judge"), replace(judgement, candidate="another candidate")] * 3,
                    replace(judgement, judge=""),
                    replace(judgement, judge_epoch=judgement.judge_epoch + 1),
                    replace(judgement, head=next_head(judgement.head, "other bytes")),
                    replace(judgement, bin=self.rng.choice(["undeclared", ""])),
                    replace(judgement, bin="fail", value="0"),
                ]
            )
        await self.command("score", f"{ref} {judgement}", lambda side: side.bus.score(ref, judgement), Group.SCORER)

    async def score_give_back(self) -> None:
        if self.scoring:
            ref, _ = self.scorer()
            await self.command("score_give_back", str(ref), lambda side: side.bus.score_give_back(ref), Group.SCORER)

    async def score_hole(self) -> None:
        if self.scoring and self.often(0.7):
            ref, _ = self.scorer()
        else:
            run = self.run(*SCORER_STATES)
            ref = Ref(self.batch, run, LeaseId(""), Gen(self.row(run).epoch))
        why = self.rng.choice(["scorer_error", "operator"])
        await self.command(
            "score_hole", f"{ref} {why}", lambda side: side.bus.score_hole(ref, why, "detail"), Group.SCORER
        )

    async def requeue(self) -> None:
        run = self.run(*WORKER_STATES, *SCORER_STATES)
        group = Group.WORKER if (self.row(run).state in WORKER_STATES) == self.often(0.9) else Group.SCORER
        name = self.row(run).entry
        if self.often(0.15) or not name.startswith(group.stream):
            name = self.rng.choice([one.name for one in self.messages.values() if one.group is group] or ["none"])
        await self.command(
            "requeue",
            f"{group} {run} {name}",
            lambda side: side.bus.requeue(self.batch, group, run, side.names.id_of(name)),
            group,
        )

    async def dead_letter(self) -> None:
        group = self.rng.choice([Group.WORKER, Group.SCORER])
        pending = self.pending(group)
        if pending:
            message = self.messages[self.rng.choice(list(pending))]
            owner = ConsumerId(pending[message.name]) if self.often(0.7) else self.rng.choice(CONSUMERS)

            def call(side: Side) -> Awaitable[None]:
                return side.bus.dead_letter(message.on(side, self.batch), owner, "unreadable")

            await self.step(f"dead_letter {message.name} by {owner}", call, group)

    async def forge(self) -> None:
        group, run = self.rng.choice([Group.WORKER, Group.SCORER]), self.run(*WORKER_STATES, *SCORER_STATES)
        await self.step(f"forge {group} {run}", lambda side: side.forge(group, run), group)

    async def lose_group(self) -> None:
        group, at_end = self.rng.choice(list(Group)), self.often(0.6)
        await self.step(
            f"lose_group {group} at_end={at_end}", lambda side: side.lose_group(group, at_end=at_end), group
        )

    async def rebind(self) -> None:
        parked = cast("list[RunId]", self.twins.seen["parked"])
        run = self.rng.choice(parked) if parked and self.often(0.9) else self.run(*SCORER_STATES)
        epoch = self.row(run).judge_epoch + (1 if self.often(0.15) else 0)
        what = f"{run} at {epoch}"
        call = (self.batch, run, epoch, "cand", self.rng.choice(["judge", "judge 2"]))
        await self.command("rebind", what, lambda side: side.bus.rebind(*call), Group.SCORER)

    async def expire(self) -> None:
        at = self.twins.memory.world.batches[self.batch]
        live = [(run, life.place) for run, life in at.lives.items() if run in at.desk.live]
        if live:
            run, place = self.rng.choice(live)
            since = self.rng.choice([0, 10**15])  # long ago, or not yet
            await self.step(f"expire {run} since {since}", lambda side: side.expire(run, place, since))

    async def sweep(self) -> None:
        await self.command("sweep", "", lambda side: side.bus.sweep(self.batch, 50))

    async def close(self) -> None:
        memory = self.twins.memory.bus
        snapshot, accepted = "not yet", self.counters.scored
        if accepted + self.counters.holes == self.spec.intended:
            snapshot = Snapshot.from_rows(await memory.rows(self.batch, self.runs), self.spec).snapshot_id
            accepted += 1 if self.often(0.2) else 0
        await self.command("close", f"{accepted}", lambda side: side.bus.close(self.batch, snapshot, accepted))

    def fits(self, name: str) -> bool:
        """Whether a step of this name has something to work on."""
        states = {row.state for row in self.rows.values()}
        counters = self.counters
        match name:
            case "admit" | "abandon":
                return counters.cursor < counters.intended and counters.in_flight < self.spec.bound
            case "read":
                return any(len(self.stream(group)) > len(self.pending(group)) for group in Group)
            case "claim":
                return bool(self.pending(Group.WORKER))
            case "score_claim":
                return bool(self.pending(Group.SCORER))
            case "append" | "seal" | "give_back" | "hole":
                return RunState.RUNNING in states
            case "score" | "score_give_back" | "score_hole":
                return RunState.SCORING in states
            case "rebind":
                return bool(self.twins.seen["parked"]) or RunState.SCORING in states
            case "close":
                return counters.scored + counters.holes == counters.intended
        return bool(states)

    async def play(self, steps: int) -> None:
        """Draw and make the steps: mostly such as have something to work on, seldom any. A closed batch has a few."""
        await self.command("create", "", lambda side: side.bus.create(self.spec))
        left = steps
        while left:
            left = min(left - 1, AFTER_CLOSE if self.counters.status.ended else left)
            unfit = 0.2 if self.counters.status.ended else 0.05
            fitting = {name: weight * (1 if self.fits(name) else unfit) for name, weight in WEIGHTS.items()}
            (name,) = self.rng.choices(list(fitting), list(fitting.values()))
            await getattr(self, name)()
        await self.twins.both(lambda _: asyncio.sleep(0))


WEIGHTS = {
    "create": 0.6, "admit": 7, "abandon": 0.6, "requeue": 1.2, "rebind": 3, "sweep": 0.3, "close": 6,
    "read": 12, "claim": 9, "append": 5, "seal": 9, "give_back": 1.5, "hole": 0.6, "heartbeat": 1.5,
    "score_claim": 10, "score": 12, "score_give_back": 3, "score_hole": 1,
    "again": 5, "dead_letter": 0.7, "forge": 1.2, "lose_group": 0.6, "expire": 0.2,
}  # fmt: skip


def drawn_spec(seed: int, rng: random.Random) -> BatchSpec:
    """A small batch whose limits are met."""
    runs = rng.randint(1, 5)
    return BatchSpec(
        batch=BatchId(f"b{seed}"),
        suite="suite",
        suite_digest=Digest("d" * 64),
        suite_path="/suite",
        intended=runs,
        quorum=rng.randint(1, runs),
        bins=("pass", "fail"),
        bound=2,
        max_in_flight=rng.randint(1, 2),
        max_deliveries=rng.randint(2, 3),
        lease_ms=1_000,
        judge_policy=rng.choice(["reject", "replay", "review"]),
        replay_budget=1,
        reclaim_ms=1_000,
    )


@pytest.fixture
def quiet() -> Iterator[None]:
    """Thousands of refusals are meant, and none of them is worth a line."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.reset_defaults()


@pytest.mark.usefixtures("quiet")
async def test_both_buses_decide_and_show_the_same(server: Target) -> None:
    """See the module's text."""
    seen: Counter[str] = Counter()
    redis = RedisBus(FixedDoor(server.address()), CountedTokens())
    wire = await Wire.open(server.address())
    world = MemoryWorld(CountedTokens())
    memory = MemoryBus(world, CountedTokens())
    try:
        for seed in range(SESSIONS):
            rng = random.Random(seed)
            spec = drawn_spec(seed, rng)
            await wire.call("FLUSHALL")
            twins = Twins(ServerSide(redis, wire, spec), MemorySide(world, memory, spec))
            session = Session(twins, spec, rng, seen)
            try:
                await session.play(STEPS)
            except TwinsDifferError as difference:
                told = "\n".join(session.steps)
                pytest.fail(f"seed {seed}, policy {spec.judge_policy}:\n{told}\n{difference}", pytrace=False)
    finally:
        await redis.aclose()
        wire.close()
    assert wanted() - set(seen) == set(), dict(seen)
