"""The values of a story: lanes, the steps between them, and what is known of the run in the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from workers.brief import brief

__all__ = [
    "Attempt",
    "Effect",
    "Facts",
    "Hold",
    "Hole",
    "Kind",
    "Lane",
    "Look",
    "Score",
    "Seal",
    "Step",
    "Story",
    "plain",
]

_LONGEST = 160  # characters of somebody else's text in a step


def plain(text: object, limit: int = _LONGEST) -> str:
    """Somebody else's text as one line that no terminal, page or encoding chokes on."""
    return brief(str(text), limit)


class Kind(StrEnum):
    """Who a lane stands for, in the order in which lanes stand."""

    PLANNER = "planner"
    BUS = "bus"
    WORKER = "worker"
    MODEL = "model"
    TOOLS = "tools"
    SCORER = "scorer"
    JUDGE = "judge"


ORDER = list(Kind)


@dataclass(frozen=True, slots=True)
class Lane:
    """One party: of a worker or a scorer, one generation of its hold on the run."""

    kind: Kind
    name: str = ""
    gen: int = 0
    """0: one that never held the run."""

    @property
    def key(self) -> str:
        """A short name for the head of a column; not unique among those that never held the run."""
        if self.kind in (Kind.WORKER, Kind.SCORER):
            return self.kind[0].upper() + (str(self.gen) if self.gen else "?")
        return self.kind[0].upper()

    @property
    def title(self) -> str:
        """`worker w1, generation 2`."""
        if self.kind in (Kind.WORKER, Kind.SCORER):
            name = plain(self.name, 48)
            who = name if name.startswith(self.kind) else f"{self.kind} {name}"  # made-up names say it themselves
            which = "generation" if self.kind is Kind.WORKER else "epoch"
            return f"{who}, {which} {self.gen}" if self.gen else f"{who}, never held it"
        return {
            Kind.PLANNER: "planner or operator",
            Kind.BUS: "bus and history",
            Kind.MODEL: "model",
            Kind.TOOLS: "tool executor",
            Kind.JUDGE: "the judge's model",
        }[self.kind]


PLANNER, BUS, MODEL, TOOLS, JUDGE = (
    Lane(kind) for kind in (Kind.PLANNER, Kind.BUS, Kind.MODEL, Kind.TOOLS, Kind.JUDGE)
)


class Look(StrEnum):
    """What became of a message; each has a line and a mark of its own, so that colour says nothing alone."""

    GRANTED = "granted"
    REFUSED = "refused"
    """The fence said no, for good; nothing of it stands."""
    DOUBT = "in doubt"
    """Not decidable yet, or only after something was undone."""
    REPEATED = "repeated"
    """Sent again, and answered as the first time."""
    TAKEN = "taken away"
    """Something was taken from whoever had it: a lease, a place."""
    DELIVERED = "delivered again"
    HOLE = "hole"
    """The run ends without a verdict."""


@dataclass(frozen=True, slots=True)
class Step:
    """One arrow. `ms` since the first step; `notes` are what else is worth knowing, each a short clause."""

    entry: str
    ms: int
    source: Lane
    target: Lane
    text: str
    look: Look = Look.GRANTED
    reason: str = ""
    by: str = ""
    """The operation that refused."""
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The words on the arrow."""
        words = {
            Look.REFUSED: f"{self.text} ✗ refused: {self.reason}",
            Look.DOUBT: f"{self.text} … {self.reason}",
            Look.REPEATED: f"{self.text} (sent again: answered as before)",
            Look.HOLE: f"{self.text} ○ hole: {self.reason}",
        }.get(self.look, self.text)
        return "; ".join([words, *self.notes])


@dataclass(slots=True)
class Hold:
    """One party's time with the run. `end` is a clause, empty while it lasts."""

    lane: Lane
    entry: str
    began_ms: int
    ended_ms: int = 0
    end: str = ""


@dataclass(frozen=True, slots=True)
class Seal:
    """The answer, bound: `events` on the chain whose last head it is. `lane` sealed it; None: another batch's run."""

    head: str
    events: int
    tree: str
    lane: Lane | None


@dataclass(frozen=True, slots=True)
class Score:
    """The verdict, and who signed it as whom."""

    bin: str
    value: str
    head: str
    judge: str
    candidate: str
    judge_epoch: int
    lane: Lane


@dataclass(frozen=True, slots=True)
class Hole:
    """The run ended without a verdict. `ended_by` is a clause; `entry` of the history proves it."""

    why: str
    ended_by: str
    entry: str


@dataclass(slots=True)
class Attempt:
    """One request to a model: what it has cost so far, in tokens."""

    judge: bool
    billed: int = 0
    durable: int = 0
    state: str = "open"


@dataclass(slots=True)
class Effect:
    """One call of a tool."""

    tool: str
    state: str = "announced"


@dataclass(slots=True)
class Facts:
    """What is known of the run when the last step has been told."""

    candidate: str = ""
    judge: str = ""
    judge_epoch: int = 0
    admitted: bool = False
    holds: list[Hold] = field(default_factory=list)
    scorings: list[Hold] = field(default_factory=list)
    turns: int = 0
    seal: Seal | None = None
    score: Score | None = None
    hole: Hole | None = None
    attempts: dict[tuple[str, int], Attempt] = field(default_factory=dict)
    effects: dict[str, Effect] = field(default_factory=dict)
    closed: str = ""
    """What became of the batch; empty while it is open."""

    @property
    def ended(self) -> bool:
        """There is a verdict, or a reason why there is none."""
        return self.score is not None or self.hole is not None


@dataclass(frozen=True, slots=True)
class Story:
    """One run, whole: what happened, and what it came to."""

    batch: str
    run: str
    steps: tuple[Step, ...]
    facts: Facts

    @property
    def lanes(self) -> list[Lane]:
        """The lanes that some step touches, in order."""
        seen = dict.fromkeys(lane for step in self.steps for lane in (step.source, step.target))
        return sorted(seen, key=lambda lane: (ORDER.index(lane.kind), lane.gen or float("inf")))

    @property
    def keys(self) -> dict[Lane, str]:
        """Each lane's short name, no two alike."""
        keys: dict[Lane, str] = {}
        for lane in self.lanes:
            key, number = lane.key, 2
            while key in keys.values():
                key, number = f"{lane.key}{number}", number + 1
            keys[lane] = key
        return keys

    @property
    def refusals(self) -> list[Step]:
        """The steps that a fence said no to."""
        return [step for step in self.steps if step.look is Look.REFUSED]
