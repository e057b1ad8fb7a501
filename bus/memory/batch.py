"""A batch in memory: the models of the twelve fences, and the life of each run, moved by the pipeline's joint steps.

What `lua/run/*.lua` does on the server is done here by the reference models: the same checks in the same order, all of
a step's changes or none, a record of every decision. The two are written apart and compared step by step, so that
either shows what is wrong with the other.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bus.memory.hand_backs import HandBacks
from bus.memory.streams import MemoryStream
from bus.models.admission import Admission
from bus.models.completion import Completion
from bus.models.histogram import Histogram, Status
from bus.models.indoubt import InDoubt
from bus.models.join import Join
from bus.models.judge import Judge
from bus.models.ledger import Ledger
from bus.models.model import MAX_INT
from bus.models.outbox import Outbox
from bus.models.plane import Plane
from bus.models.sandbox import Sandbox
from bus.models.transcript import Run as Chain
from bus.models.transcript import Transcript
from bus.models.workspace import Workspace
from bus.port import BatchSpec, FanOut, Group, RunState
from bus.port_calls import JUDGE_DESK, MODEL_DESK
from bus.recorded import Recorded
from bus.types import EntryId, Gen, RunId

__all__ = ["RUNS_DESK", "VERDICT_SCHEMA", "WAITING", "Life", "MemoryBatch", "OpenCall", "ToolLife"]

RUNS_DESK = "runs"

VERDICT_SCHEMA = "bin/1"
"""The form of a verdict that a score attaches to its tree: the bin's name."""

WAITING: Mapping[Group, tuple[RunState, ...]] = {
    Group.WORKER: (RunState.QUEUED, RunState.RUNNING),
    Group.SCORER: (RunState.SEALED, RunState.SCORING),
}
"""The states in which a run has its message in a group's stream."""


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A request that has a place at a desk: what to give up when its run is taken from its holder."""

    desk: str
    step: str
    attempt: int
    request: str


@dataclass(slots=True)
class ToolLife:
    """An intent, or an undo, beside its fences: which message counts, and what its call holds."""

    run: RunId
    entry: EntryId | None = None
    """The one message that counts; None once nobody has to be given it any more."""
    admission: str = ""
    """To its plane."""
    claims: int = 0


@dataclass(slots=True)
class Life:
    """One run beside its fences: where it is, who works on it."""

    entry: EntryId
    """The one message that counts; empty when there never was any."""
    state: RunState = RunState.QUEUED
    place: str = ""
    """Its lease at the desk of runs."""
    consumer: str = ""
    """Who claimed it last."""
    lease: str = ""
    """The worker's live random id; a chain that a turn began knows it under another name."""
    gen: int = 0
    """The generation that was minted last, of 4 and 7 alike."""
    conversation: int = 0
    turning: bool = False
    wrote: bool = False
    """The conversation has written to a workspace."""
    epoch: int = 0
    """Of the workspace."""
    attempts: int = 0
    score_attempts: int = 0
    hand_backs: HandBacks = field(default_factory=HandBacks)
    score_hand_backs: HandBacks = field(default_factory=HandBacks)
    scorer_lease: str = ""
    ended: dict[str, str] = field(default_factory=dict)
    """Lease → the step that ended it: its resend is a duplicate, also when the run has moved on."""
    writers: dict[int, list[Gen]] = field(default_factory=dict)
    """Who wrote each event, by conversation."""
    calls: dict[str, OpenCall] = field(default_factory=dict)
    """Lease at a desk → what it was taken for."""
    intended: dict[int, str] = field(default_factory=dict)
    """Seq → step, of the model calls whose intentions stand in the live chain; all others are fan-outs'."""
    fan_outs: dict[str, FanOut] = field(default_factory=dict)
    """Step → what was announced, in the live conversation."""
    intents: list[str] = field(default_factory=list)
    """Those of the live conversation, in the order in which they were put."""
    tree: str = ""
    artifact: str = ""
    detail: str = ""


class MemoryBatch:
    """See the module's text. `incarnation` and all random ids come from the callers."""

    def __init__(self, spec: BatchSpec, declared: str, incarnation: str, now: Callable[[], float]) -> None:
        """An empty batch, as `create` leaves it."""
        self.spec, self.declared, self.incarnation = spec, declared, incarnation
        self._now = now
        self.server = ""
        """The life of the server in which its tokens were granted."""
        self.floor = 0
        """Generations up to it are void: they were granted in another one."""
        limits = spec.limits
        self.transcript = Transcript()
        self.histogram = Histogram(
            intended=[], quorum=spec.quorum, bins=list(spec.bins), max_in_flight=spec.max_in_flight
        )
        self.judge = Judge(policy=spec.judge_policy, replay_budget=spec.replay_budget)
        self.desks = {
            RUNS_DESK: Admission(bound=spec.bound, reclaim_ms=spec.reclaim_ms),
            MODEL_DESK: Admission(bound=_number(limits, "model_slots", 0), reclaim_ms=spec.reclaim_ms),
            JUDGE_DESK: Admission(bound=_number(limits, "judge_slots", 0), reclaim_ms=spec.reclaim_ms),
        }
        self.has_calls, self.has_disks = "compute_retries" in limits, "heartbeat_ms" in limits
        self.completion = Completion(
            compute_retries=_number(limits, "compute_retries", 0), model_retries=_number(limits, "model_retries", 0)
        )
        counts_tokens = self.has_calls or "judge_slots" in limits
        self.has_budget = "budget" in limits or counts_tokens
        self.ledger = Ledger(budget=_number(limits, "budget", MAX_INT if counts_tokens else 0))
        self.join = Join(budget=_number(limits, "budget", MAX_INT), budget_epoch=_number(limits, "budget_epoch", 0))
        self.sandbox = Sandbox(heartbeat_ms=_number(limits, "heartbeat_ms", 1))
        self.workspace = Workspace(schemas=json.loads(str(limits.get("schemas", f'["{VERDICT_SCHEMA}"]'))))
        self.plane = Plane(capacity=_number(limits, "capacity", spec.bound))
        self.outbox = Outbox(
            ack_bound_ms=_number(limits, "ack_bound_ms", MAX_INT),
            inverses=json.loads(str(limits.get("inverses", "{}"))),
        )
        self.indoubt = InDoubt()
        self.streams = {group: MemoryStream(now) for group in Group}
        self.lives: dict[RunId, Life] = {}
        """Every run that was admitted or abandoned, in that order."""
        self.tools: dict[str, ToolLife] = {}
        """Intent → its life; undos too."""
        self.estimated = 0
        """Tokens that were charged by a guess."""
        self.parked: set[RunId] = set()
        self.dead: list[Mapping[str, str]] = []
        self.cursor = 0
        self.refused: Counter[str] = Counter()
        self.history: list[Recorded] = []

    @property
    def desk(self) -> Admission:
        """The desk of runs."""
        return self.desks[RUNS_DESK]

    def now_ms(self) -> int:
        """The batch's clock."""
        return int(self._now() * 1000)

    def set_clocks(self) -> None:
        """Tell every fence that measures silence what time it is."""
        for model in (*self.desks.values(), self.sandbox, self.outbox, self.indoubt):
            model.now_ms = self.now_ms()

    @property
    def ended(self) -> bool:
        """Closed, or inconclusive."""
        return self.histogram.status in (Status.CLOSED, Status.INCONCLUSIVE)

    def life(self, run: RunId) -> Life:
        """A run's life; one that was never admitted has an empty one, which is not kept."""
        return self.lives.get(run) or Life(EntryId(""))

    def state(self, run: RunId) -> RunState | None:
        """Where a run is, or None when it was neither admitted nor abandoned."""
        return self.lives[run].state if run in self.lives else None

    def alone(self, state: RunState) -> bool:
        """Whether one run of the batch is in that state, and no other."""
        return sum(life.state is state for life in self.lives.values()) == 1

    def waits_for(self, group: Group, run: RunId) -> bool:
        """Whether a run is in a state in which a consumer of this group can move it."""
        return self.state(run) in WAITING.get(group, ())

    def chain_name(self, run: RunId) -> str:
        """A run's name in the transcript's fence: each conversation is a chain of its own."""
        return f"{run}~{self.life(run).conversation}"

    def chain(self, run: RunId) -> Chain:
        """A run's live transcript; empty when nobody was granted it."""
        return self.transcript.runs.get(self.chain_name(run)) or Chain()

    def chain_lease(self, run: RunId, lease_id: str) -> str:
        """The name under which the live chain knows a holder's lease: one that a turn began has its own."""
        live = self.chain(run).live
        if lease_id == self.life(run).lease and live is not None:
            return live.lease_id
        return lease_id

    def epoch(self, run: RunId) -> int:
        """The fenced scoring epoch, 0 before the first."""
        return self.histogram.epochs.get(run, 0)

    def holder_is_live(self, run: RunId, lease_id: str, gen: int) -> bool:
        """Whether this is the worker's live pair of a running run."""
        life = self.life(run)
        running = self.state(run) is RunState.RUNNING
        live = self.chain(run).live is not None and gen > self.floor
        return running and live and (life.lease, life.gen) == (lease_id, gen)

    def scorer_is_live(self, run: RunId, lease_id: str, gen: int) -> bool:
        """Whether this is the scorer's live pair of a run being scored."""
        scoring = self.state(run) is RunState.SCORING and gen > self.floor
        return scoring and self.life(run).scorer_lease == lease_id and self.epoch(run) == gen

    def has_effect(self, run: RunId, name: str) -> bool:
        """Whether it is this run's: an intent that it put, or the undo of one."""
        return name in self.tools and self.tools[name].run == run

    @property
    def effects_open(self) -> int:
        """Intents and undos that have not ended."""
        return sum(not _is_final(intent.state) for intent in self.outbox.intents.values())

    @property
    def stuck(self) -> int:
        """Intents whose effect nobody knows and nobody can undo."""
        return sum(
            intent.state == "stuck" for name, intent in self.outbox.intents.items() if not name.endswith("~undo")
        )


def _is_final(state: str) -> bool:
    return state in ("committed", "failed", "compensated", "stuck")


def _number(limits: Mapping[str, int | str], name: str, otherwise: int) -> int:
    value = limits.get(name, otherwise)
    assert isinstance(value, int)
    return value
