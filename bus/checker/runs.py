"""How the fences work together in one run: who holds it, what was accepted from whom, and how it ended.

The export does not name the steps of the pipeline, but each can be told by its envelope and its parts: a claim names an
entry and a consumer, a hand-back names a lease and nothing else but the machine that could not do it, an adoption names
its source. All parts of an entry are one step, so a step is judged by what stood before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bus.checker.board import Board
from bus.checker.checked import Leases, Preempted
from bus.checker.said import Said
from bus.checker.setting import Setting
from bus.checker.transcript import run_of
from bus.checker.tries import Tries

__all__ = ["Run", "Runs"]

_COMMON = frozenset({"schema", "batch", "plane", "server"})
_HAND_BACK = frozenset({"lease_id", "gen", "run"})
_UNFIT = frozenset({"machine", "seen"})
_OUTLIVE = frozenset({"outbox", "plane", "indoubt", "ledger", "admission", "run"})
"""What may still come of a run that has ended: its effects and their undos, its spend, and the places of both."""


@dataclass(slots=True)
class _Lease:
    id: str
    gen: int
    scoring: bool
    consumer: str
    granted_ms: int
    heard_ms: int


@dataclass(slots=True)
class Run:
    """One run, from its admission to its end."""

    state: str = "unknown"
    """`queued`, `running`, `sealed`, `scoring`, `scored`, `hole`; `unknown` before its admission."""
    lease: _Lease | None = None
    gen: int = 0
    epoch: int = 0
    entry: str = ""
    """The message that was claimed last."""
    head: str = ""
    tree: str = ""
    admitted: bool = False
    hole: str = ""
    ended_ms: int = 0
    of_workers: Tries = field(default_factory=Tries)
    of_scorers: Tries = field(default_factory=Tries)

    @property
    def ended(self) -> bool:
        """It is scored or a hole."""
        return self.state in ("scored", "hole")


class Runs:
    """See the module's text."""

    def __init__(self, board: Board, setting: Setting) -> None:
        """How many runs were declared."""
        self._intended: int = setting.policy["intended"]
        self._most: int = setting.policy["max_deliveries"]
        self._timed = setting.timed
        self.runs: dict[str, Run] = {}
        self.preempted: list[Preempted] = []
        self.redeliveries = 0
        self._floor = 0
        self._granted: dict[str, str] = {}
        self._workers = self._scorers = self._handed_back = self._voided = 0
        self._tools: dict[str, str] = {}
        p = board.add
        self._p1 = p("run.P1", "each accepted step's lease was the run's live one", "steps accepted of a lease")
        self._p2 = p("run.P2", "a run's generations and epochs never repeat nor go back", "leases")
        self._p3 = p("run.P3", "a lease's id is granted once in the batch, to workers and scorers", "leases")
        self._p4 = p("run.P4", "no worker is granted a sealed run, nobody an ended one", "leases")
        self._p5 = p("run.P5", "one claim grants one generation in all fences", "leases of workers")
        self._p6 = p("run.P6", "a run is admitted once, and no more runs than were declared", "runs admitted")
        self._p7 = p("run.P7", "what was scored is what was sealed", "scores")
        self._p8 = p("run.P8", "each score was signed for its head, bin and value, by the bound judge", "scores")
        self._p9 = p("run.P9", "each score of a sealed tree was attached to that tree", "scores of trees")
        self._p10 = p("run.P10", "a run that ends gives its places back in the same step", "ends of admitted runs")
        self._p11 = p("run.P11", "of an ended run only effects and spend are accepted", "steps of ended runs")
        self._p12 = p("run.P12", "a restart's floor is above all that was granted before", "restarts")
        self._p13 = p("run.P13", "at the close every admitted run has ended", "runs admitted")
        self._p14 = p(
            "run.P14", "no run ends for what one machine could not do", "ends for want of a machine or deliveries"
        )
        self._on: Mapping[tuple[str, str], Callable[[Said, Sequence[Said]], None]] = {
            ("judge", "mint"): self._admit,
            ("judge", "rebind"): self._rebind,
            ("transcript", "lease"): self._claim,
            ("transcript", "seal"): self._seal,
            ("plane", "write"): self._adopt,
            ("workspace", "record"): self._record,
            ("histogram", "fence"): self._score_claim,
            ("histogram", "score"): self._score,
            ("histogram", "abandon"): self._hole,
            ("outbox", "claim"): self._tool_claim,
            ("run", "restarted"): self._restart,
        }

    @property
    def leases(self) -> Leases:
        """How many were granted, and what became of some."""
        return Leases(self._workers, self._scorers, self._handed_back, self._voided)

    def take(self, parts: Sequence[Said]) -> None:
        """All parts of one entry, in order."""
        first = parts[0]
        if not first.part:
            return  # a fence's operation by itself, of no step
        applied = [said for said in parts if said.done]
        envelope = first.envelope
        named = envelope.get("run")
        run = self.runs.get(named) if isinstance(named, str) else None
        if run is not None and applied:
            self._accept(run, applied)
        for said in applied:
            on = self._on.get((said.fence, said.op))
            if on is not None:
                on(said, parts)
        if run is not None and applied and envelope.keys() - _COMMON - _UNFIT == _HAND_BACK:
            self._hand_back(run, envelope)
        last = parts[-1]
        if run is not None and run.lease is not None and last.reason == "its_own_doing":
            tries = run.of_scorers if run.lease.scoring else run.of_workers
            machine, seen = envelope.get("machine", ""), "seen" in envelope
            enough = tries.is_its_own_doing(machine, alone=self._is_alone(run), seen=seen)
            self._p14.see(enough, last, "before, {} machines could not", len(tries.machines))
        if run is not None and last.verb in ("replay", "in_doubt") and (last.fence, last.op) == ("judge", "commit"):
            run.lease, run.state = None, "sealed"  # parked: nobody scores it before it is bound anew

    # --- who may -------------------------------------------------------------------------------------------

    def _accept(self, run: Run, applied: Sequence[Said]) -> None:
        first = applied[0]
        if run.ended:
            others = [f"{said.fence}.{said.op}" for said in applied if said.fence not in _OUTLIVE]
            self._p11.see(not others, first, "the run is {}, and there came {}", run.state, others)
        envelope = first.envelope
        # What was delivered was spent, whoever brings it: chunks alone take nobody's word for a lease.
        is_more = any((said.fence, said.op) != ("ledger", "chunk") for said in applied)
        if "lease_id" not in envelope or "gen" not in envelope or not is_more:
            return
        held = run.lease
        is_live = held is not None and held.id == envelope["lease_id"] and held.gen == envelope["gen"] > self._floor
        self._p1.see(
            is_live, first, "live is {}, generation {}", held.id if held else "nobody", held.gen if held else "-"
        )
        if held is not None:
            held.heard_ms = first.ms

    def _grant(self, said: Said, run: Run, gen: int, *, scoring: bool) -> None:
        envelope = said.envelope
        voided = run.lease is not None and run.lease.gen <= self._floor
        (run.of_scorers if scoring else run.of_workers).granted(voided=voided)
        self._supersede(said, run)
        last = run.epoch if scoring else run.gen
        self._p2.see(gen > max(last, self._floor), said, "generation {} behind {}", gen, max(last, self._floor))
        name = envelope["lease_id"]
        self._p3.see(name not in self._granted, said, "{} was granted for {}", name, self._granted.get(name))
        self._granted[name] = envelope["run"]
        allowed = ("sealed", "scoring") if scoring else ("queued", "running")
        self._p4.see(run.state in allowed, said, "the run is {}", run.state)
        run.lease = _Lease(name, gen, scoring, envelope["consumer"], said.ms, said.ms)
        if scoring:
            run.epoch, run.state = gen, "scoring"
            self._scorers += 1
        else:
            run.gen, run.state = gen, "running"
            self._workers += 1

    def _supersede(self, said: Said, run: Run) -> None:
        """A claim: if somebody holds the run, he has lost it."""
        held, envelope = run.lease, said.envelope
        self.redeliveries += run.entry == envelope["entry"]
        run.entry = envelope["entry"]
        if held is not None:
            lost = Preempted(
                envelope["run"], held.id, held.consumer, held.scoring, held.granted_ms, held.heard_ms, said.ms,
                envelope["consumer"],
            )  # fmt: skip
            self.preempted.append(lost)
        run.lease = None

    def _hand_back(self, run: Run, envelope: Mapping[str, Any]) -> None:
        if run.lease is not None:
            tries = run.of_scorers if run.lease.scoring else run.of_workers
            if "machine" in envelope:
                tries.unfit_for(envelope["machine"], alone=self._is_alone(run), seen="seen" in envelope)
            else:
                tries.stopped()
            run.state = "sealed" if run.lease.scoring else "queued"
            self._handed_back += 1
        run.lease = None

    def _is_alone(self, run: Run) -> bool:
        """Whether no other run is in anybody's hands at this stage."""
        return sum(one.state == run.state for one in self.runs.values()) == 1

    # --- the steps -----------------------------------------------------------------------------------------

    def _run(self, name: str) -> Run:
        return self.runs.setdefault(name, Run())

    def _admit(self, said: Said, _: Sequence[Said]) -> None:
        run = self._run(said.args["run"])
        is_new = run.state == "unknown" and len(self.runs) <= self._intended
        self._p6.see(is_new, said, "it is {}, of {} runs", run.state, len(self.runs))
        run.state, run.admitted = "queued", True

    def _claim(self, said: Said, parts: Sequence[Said]) -> None:
        if "entry" not in said.envelope:
            return  # a turn, which goes on under the lease that it has
        run = self._run(run_of(said.args["run"]))
        minted = [part.answer["gen"] for part in parts if part.op == "lease" and part.done]
        self._p5.see(len(set(minted)) == 1, said, "granted are {}", minted)
        self._grant(said, run, said.answer["gen"], scoring=False)

    def _seal(self, said: Said, _: Sequence[Said]) -> None:
        run = self._run(run_of(said.args["run"]))
        run.state, run.lease, run.head = "sealed", None, said.args["head"]
        run.tree = said.envelope.get("tree_hash", "")

    def _adopt(self, said: Said, _: Sequence[Said]) -> None:
        """Another batch's sealed run is taken over: its head stands in the result."""
        if "source" in said.envelope:
            run = self._run(said.args["key"].split(":")[1])
            run.state, run.head = "sealed", said.args["body"]

    def _record(self, said: Said, _: Sequence[Said]) -> None:
        if "source" in said.envelope:
            self._run(said.args["step"]).tree = said.args["tree_hash"]

    def _score_claim(self, said: Said, _: Sequence[Said]) -> None:
        self._grant(said, self._run(said.args["run"]), said.args["epoch"], scoring=True)

    def _rebind(self, said: Said, _: Sequence[Said]) -> None:
        run = self._run(said.args["run"])
        run.lease, run.state = None, "sealed"

    def _score(self, said: Said, parts: Sequence[Said]) -> None:
        run, args = self._run(said.args["run"]), said.args
        self._p7.see(run.head == args["digest"], said, "sealed was {}", run.head)
        text = f"{args['digest']}\n{args['bin']}\n{args['value']}"
        signature = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        signed = [
            part.args["score_digest"] for part in parts if (part.fence, part.op) == ("judge", "commit") and part.done
        ]
        self._p8.see(signed == [signature], said, "signed was {}, it is {}", signed, signature)
        if run.tree:
            tested = [part.args["tree_hash"] for part in parts if part.op == "attach" and part.done]
            self._p9.see(tested == [run.tree], said, "sealed was {}, tested {}", run.tree, tested)
        self._end(said, run, "scored", parts)

    def _hole(self, said: Said, parts: Sequence[Said]) -> None:
        run = self._run(said.args["run"])
        if "entry" in said.envelope and "consumer" in said.envelope:
            self._supersede(said, run)  # delivered too often: who claims it last ends it
        run.hole = said.args["why"]
        tries = {"poison": run.of_workers, "judge_failed": run.of_scorers}.get(run.hole)
        if tries is not None and "entry" in said.envelope:
            self._p14.see(tries.counted >= self._most, said, "of {} deliveries {} count", self._most, tries.counted)
        self._end(said, run, "hole", parts)

    def _end(self, said: Said, run: Run, state: str, parts: Sequence[Said]) -> None:
        if run.admitted:
            given = {(part.fence, part.op) for part in parts if part.done}
            whole = given >= {("admission", "release"), ("plane", "release")}
            self._p10.see(whole, said, "its place stays taken")
        run.state, run.lease, run.ended_ms = state, None, said.ms

    def _tool_claim(self, said: Said, _: Sequence[Said]) -> None:
        intent, entry = said.args["intent_id"], said.envelope.get("entry")
        if isinstance(entry, str):
            self.redeliveries += self._tools.get(intent) == entry
            self._tools[intent] = entry

    def _restart(self, said: Said, _: Sequence[Said]) -> None:
        floor, highest = said.answer["floor"], self._floor
        if self._timed:  # the floor comes from the clock; one that was set back is not above what was granted
            highest = max((max(run.gen, run.epoch) for run in self.runs.values()), default=highest)
        self._p12.see(floor > max(highest, self._floor), said, "{} is not above {}", floor, max(highest, self._floor))
        self._voided += sum(run.lease is not None and run.lease.gen > self._floor for run in self.runs.values())
        self._floor = max(self._floor, floor)

    def end(self) -> None:
        """Nobody is lost, and nobody is stuck."""
        for name, run in self.runs.items():
            if run.admitted:
                self._p13.see(run.ended, name, "it is {}", run.state)
