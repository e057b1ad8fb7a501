"""What may be asked of a batch in its life, drawn at random: the material of `tests.sessions`.

Whatever the roles, their late ghosts and an operator may ask is drawn: what fits, and what comes twice, too late, from
the wrong consumer, for another run or under a forged prefix.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from bus.chain import EMPTY_HEAD, next_head
from bus.port import BatchSpec, Counters, Entry, Group, Held, Judgement, NextRuns, Receipt, Ref, RunRow, RunState
from bus.snapshot import Snapshot
from bus.types import BatchId, ConsumerId, Decision, Digest, Gen, LeaseId, RunId
from tests.twins import Side, Twins

__all__ = ["CONSUMERS", "SCORER_STATES", "WORKER_STATES", "LifeSession", "Message"]

CONSUMERS = [ConsumerId(name) for name in ("c1", "c2", "c3")]
MACHINES = ["", "", "m1", "m2", "m3", "m4", "m5", "m 6"]
"""Whose fault a hand-back is; empty: it has to stop. The last is no name."""
WORKER_STATES = (RunState.QUEUED, RunState.RUNNING)
SCORER_STATES = (RunState.SEALED, RunState.SCORING)
UNCLAIMED = (RunState.QUEUED, RunState.SEALED)
NO_ROW = RunRow(RunId(""), RunState.HOLE, 0, 0, 0, "none", EMPTY_HEAD, 0, 0, "", "", "", "", "")


@dataclass(frozen=True, slots=True)
class Message:
    """An entry that was seen once, under the name that both sides share."""

    name: str
    group: Group
    run: RunId
    intent: str = ""

    @property
    def fields(self) -> dict[str, str]:
        """What it says."""
        return {"run": self.run, **({"intent": self.intent} if self.intent else {})}

    def on(self, side: Side, batch: BatchId) -> Entry:
        """As this side delivered it."""
        return Entry(batch, self.group, side.names.id_of(self.name), self.run, self.fields)


class LifeSession:
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
        self.receipts: list[tuple[Ref, Receipt]] = []
        self.focus: Ref | None = None
        """The holder whose turn it is, in a session that is led."""
        self.exact = 0.9
        """How often a token is used as it was granted."""
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

    def stream(self, group: Group) -> Mapping[str, Mapping[str, str]]:
        """Message → what it says, of what has not been handled."""
        return cast("Sequence[Mapping[str, Mapping[str, str]]]", self.twins.seen["streams"])[list(Group).index(group)]

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
            for name, says in self.stream(one).items():
                message = Message(name, one, RunId(says["run"]), says.get("intent", ""))
                self.messages.setdefault(name, message)
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
                self.batch,
                NextRuns(cursor, runs, [one.on(side, self.batch) for one in read], CONSUMERS[0], "cand", "judge"),
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
            token = (Gen(answer["gen"]), answer["conversation"], answer["epoch"])
            self.held.append(Ref(self.batch, message.run, lease_id, *token))
        else:
            ref = Ref(self.batch, message.run, lease_id, Gen(answer["epoch"]))
            bound = Judgement(
                answer["head"], answer["tree_hash"], answer["candidate"], answer["judge"], answer["judge_epoch"],
                "pass", "1",
            )  # fmt: skip
            self.scoring.append((ref, bound))

    def is_live(self, ref: Ref, state: RunState, gen: int) -> bool:
        """Whether a token is the one that counts."""
        return self.row(ref.run).state is state and ref.gen == gen

    def holder(self) -> Ref:
        """A live token, one that was, or one that is made up of two."""
        if self.focus is not None and self.often(0.95):
            return self.mixed(self.focus, self.held)
        live = self.live()
        ref = self.rng.choice(live[-3:] if live and self.often(0.85) else self.held)
        return self.mixed(ref, self.held)

    def live(self) -> list[Ref]:
        """The tokens that count."""
        return [
            ref
            for ref in self.held
            if self.is_live(ref, RunState.RUNNING, self.row(ref.run).gen)
            and ref.conversation == self.row(ref.run).conversation
        ]

    def mixed(self, ref: Ref, others: Sequence[Ref]) -> Ref:
        if self.often(self.exact):
            return ref
        other = self.rng.choice(others)
        return self.rng.choice(
            [
                replace(ref, lease_id=other.lease_id),
                replace(ref, lease_id=LeaseId("nobody's")),
                replace(ref, gen=Gen(ref.gen + 1)),
                replace(ref, gen=Gen(0)),
                replace(ref, run=other.run),
                replace(ref, conversation=max(0, ref.conversation + self.rng.choice([-1, 1]))),
                replace(ref, epoch=ref.epoch + 1),
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
            told = self.told(ref)
            what = f"{len(texts)} to {ref} at {seq} after {parent[:6]}, {told}"
            await self.command("append", what, lambda side: side.bus.append(ref, parent, seq, texts, told))

    def told(self, ref: Ref) -> Sequence[Receipt]:
        """Receipts of writes that an event of this holder may tell of."""
        mine = [receipt for of, receipt in self.receipts if of.run == ref.run or self.often(0.03)]
        found = self.rng.sample(mine[-3:], k=min(len(mine), self.rng.choice([0, 1, 1, 2])))
        return [replace(one, receipt="another") if self.often(0.1) else one for one in found]

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
            machine = self.rng.choice(MACHINES)
            await self.command(
                "give_back", f"{ref} {machine}", lambda side: side.bus.give_back(ref, machine, seen=machine == "m1")
            )

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
                    replace(judgement, tree_hash=self.rng.choice(["another tree", ""])),
                ]
            )
        await self.command("score", f"{ref} {judgement}", lambda side: side.bus.score(ref, judgement), Group.SCORER)

    async def score_give_back(self) -> None:
        if self.scoring:
            (ref, _), machine = self.scorer(), self.rng.choice(MACHINES)
            await self.command(
                "score_give_back", f"{ref} {machine}", lambda side: side.bus.score_give_back(ref, machine), Group.SCORER
            )

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
        await self.step(f"forge {group} {run}", lambda side: side.forge(group, {"run": run}), group)

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
