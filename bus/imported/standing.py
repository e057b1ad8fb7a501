"""How the runs of an imported batch stand: what the rows on its server said when its history was exported.

The models of replay hold what their fences hold. A row says more: in whose hands the run was, how often it was
delivered, which conversation counts. That follows from the same lines, and is followed here beside replay, which has
already found every decision to be right.

What is in no line cannot be had back: what an ended run says of itself (`detail`), unless its scorer said it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bus.chain import EMPTY_HEAD
from bus.imported.effects import Effects
from bus.replay.telling import Told
from bus.values import FREE_HAND_BACKS, RunState

__all__ = ["RunStanding", "Standing"]

_GRANTED = ("commit", "duplicate")
_ADDRESS = frozenset({"schema", "plane", "batch", "server"})  # in every envelope
_OF_A_HAND_BACK = frozenset({"run", "lease_id", "gen"})
_UNFIT = frozenset({"machine", "seen"})  # likewise, by a machine that could not do it


@dataclass(slots=True)
class RunStanding:
    """One run. The fields are those of `bus.values.RunRow`, but for what only the following of it needs."""

    state: RunState = RunState.QUEUED
    gen: int = 0
    attempts: int = 0
    score_attempts: int = 0
    consumer: str = ""
    conversation: int = 0
    head: str = EMPTY_HEAD
    length: int = 0
    epoch: int = 0
    digest: str = ""
    bin: str = ""
    value: str = ""
    hole: str = ""
    detail: str = ""
    tree: str | None = None
    """None: never sealed."""
    artifact: str = ""
    candidate: str = ""
    judge: str = ""
    judge_epoch: int = 0
    hand_backs: int = 0
    score_hand_backs: int = 0
    is_leased: bool = False
    is_being_scored: bool = False

    def fields(self) -> dict[str, str | int]:
        """As a row has them: what is not set is not there."""
        row: dict[str, str | int] = {
            "state": self.state.value,
            "t.gen": self.gen,
            "attempts": self.attempts,
            "s.attempts": self.score_attempts,
            "consumer": self.consumer,
            "conversation": self.conversation,
            "t.head": "" if self.head == EMPTY_HEAD else self.head,
            "t.len": self.length,
            "h.epoch": self.epoch,
            "h.digest": self.digest,
            "h.bin": self.bin,
            "h.value": self.value,
            "h.why": self.hole,
            "detail": self.detail,
            "artifact": self.artifact,
            "j.candidate": self.candidate,
            "j.judge": self.judge,
            "j.epoch": self.judge_epoch,
        }
        found = {name: value for name, value in row.items() if value}
        return found if self.tree is None else {**found, "tree": self.tree}


class Standing:
    """Takes every line in order. `runs` are in the order of their admission."""

    def __init__(self, effects: Effects) -> None:
        """`effects`: those of this batch."""
        self.runs: dict[str, RunStanding] = {}
        self.parked: set[str] = set()
        """Runs whose score waits for a person or another binding."""
        self.effects = effects
        self._floor = 0
        self._on_commit: dict[tuple[str, str], Callable[[Told], None]] = {
            ("judge", "mint"): self._admitted,
            ("judge", "rebind"): self._bound_anew,
            ("histogram", "abandon"): self._named_a_hole,
            ("histogram", "fence"): self._claimed_by_a_scorer,
            ("histogram", "score"): self._scored,
            ("transcript", "lease"): self._leased,
            ("transcript", "fence"): self._taken_from_its_holder,
            ("transcript", "append"): self._appended,
            ("transcript", "seal"): self._sealed,
            ("workspace", "record"): self._tree_recorded,
            ("plane", "write"): self._result_written,
            ("admission", "expire"): self._maybe_handed_back_by_a_scorer,
            ("run", "score_yield"): self._maybe_handed_back_by_a_scorer,
            ("run", "restarted"): self._restarted,
        }

    def follow(self, told: Told) -> None:
        """The next line."""
        if told.fence == "outbox":
            self.effects.follow(told)
        elif told.verb == "commit":
            if (known := self._on_commit.get((told.fence, told.op))) is not None:
                known(told)
        elif (told.fence, told.op) == ("judge", "commit") and told.verb not in _GRANTED:
            self._answered_by_another(told)

    def _at(self, run: object) -> RunStanding:
        return self.runs.setdefault(str(run), RunStanding())

    # --- planner -----------------------------------------------------------------------------------------

    def _admitted(self, told: Told) -> None:
        at = self._at(told.args["run"])
        if _is_adopted(told):
            at.state, at.tree = RunState.SEALED, ""
        self._bind(at, told.args)

    def _bind(self, at: RunStanding, named: Any) -> None:  # noqa: ANN401 - a JSON object
        at.candidate, at.judge, at.judge_epoch = named["candidate"], named["judge"], named["epoch"]

    def _bound_anew(self, told: Told) -> None:
        run = told.args["run"]
        at = self._at(run)
        self._bind(at, told.args)
        at.judge_epoch = told.answer["epoch"]
        at.state, at.detail, at.is_being_scored = RunState.SEALED, "", False
        self.parked.discard(run)

    def _named_a_hole(self, told: Told) -> None:
        run = told.args["run"]
        at = self._at(run)
        at.state, at.hole, at.is_being_scored = RunState.HOLE, told.args["why"], False
        if "score_digest" in told.envelope:
            at.detail = str(told.envelope.get("detail", ""))
        self.parked.discard(run)

    def _result_written(self, told: Told) -> None:
        """A run that another batch sealed comes with its head; the transcript itself stays there."""
        if _is_adopted(told):
            run = str(told.args["key"]).partition(":")[2].rpartition(":")[0]
            self._at(run).head = told.args["body"]

    def _restarted(self, told: Told) -> None:
        self._floor = max(self._floor, told.answer["floor"])

    # --- worker ------------------------------------------------------------------------------------------

    def _leased(self, told: Told) -> None:
        """A claim; or a turn, which gives the holder a new conversation."""
        run, number = _chain(told)
        at = self._at(run)
        was_voided = at.is_leased and at.gen <= self._floor  # by a restart: that is nobody's failure
        at.gen, at.is_leased = told.answer["gen"], True
        if "abandoned" in told.envelope:
            at.conversation, at.head, at.length = number, EMPTY_HEAD, 0
            return
        at.state, at.consumer = RunState.RUNNING, str(told.envelope.get("consumer", ""))
        at.attempts += not was_voided

    def _taken_from_its_holder(self, told: Told) -> None:
        """Handed back by it; where the run ended the hole was named first, and a turn goes on."""
        at = self._at(_chain(told)[0])
        at.is_leased = False
        if at.state is RunState.RUNNING and "abandoned" not in told.envelope:
            at.state = RunState.QUEUED
            is_free = "machine" in told.envelope
            at.hand_backs += not is_free
            at.attempts -= is_free or at.hand_backs <= FREE_HAND_BACKS

    def _appended(self, told: Told) -> None:
        run, number = _chain(told)
        at = self._at(run)
        if at.conversation == number:
            at.head, at.length = told.answer["head"], told.args["seq"]

    def _sealed(self, told: Told) -> None:
        at = self._at(_chain(told)[0])
        at.state = RunState.SEALED
        at.tree, at.artifact = (str(told.envelope.get(name, "")) for name in ("tree_hash", "artifact"))

    def _tree_recorded(self, told: Told) -> None:
        at = self._at(told.args["step"])
        at.tree, at.gen = told.args["tree_hash"], told.args["gen"]

    # --- scorer ------------------------------------------------------------------------------------------

    def _claimed_by_a_scorer(self, told: Told) -> None:
        at = self._at(told.args["run"])
        was_voided = at.is_being_scored and at.epoch <= self._floor
        at.epoch, at.digest = told.args["epoch"], told.args["digest"]
        at.state, at.consumer = RunState.SCORING, str(told.envelope.get("consumer", ""))
        at.score_attempts += not was_voided
        at.is_being_scored = True

    def _maybe_handed_back_by_a_scorer(self, told: Told) -> None:
        """A hand-back is told by its envelope: where it gave up calls, they alone are its parts."""
        if told.envelope.keys() - _ADDRESS - _UNFIT != _OF_A_HAND_BACK:
            return
        at = self._at(told.envelope["run"])
        if at.state is RunState.SCORING:
            at.state, at.is_being_scored = RunState.SEALED, False
            is_free = "machine" in told.envelope
            at.score_hand_backs += not is_free
            at.score_attempts -= is_free or at.score_hand_backs <= FREE_HAND_BACKS

    def _answered_by_another(self, told: Told) -> None:
        """Another judge or candidate than was bound: parked, unless it is the end of the run."""
        run, reason = told.envelope.get("run"), told.reason or ""
        if not isinstance(run, str) or told.verb == "reject" or not reason.endswith("_mismatch"):
            return
        at = self._at(run)
        at.state, at.is_being_scored = RunState.SEALED, False
        who = reason.partition("_")[0]
        at.detail = str(told.envelope.get("detail", f"another {who} answered than was bound"))
        self.parked.add(run)

    def _scored(self, told: Told) -> None:
        at = self._at(told.args["run"])
        at.state, at.is_being_scored = RunState.SCORED, False
        at.bin, at.value = told.args["bin"], told.args["value"]


def _is_adopted(told: Told) -> bool:
    """Whether the step took over what another batch sealed."""
    return "source" in told.envelope and "cursor" in told.envelope


def _chain(told: Told) -> tuple[str, int]:
    """Of a decision of fence 7: the run, and which of its conversations."""
    run, _, number = str(told.args["run"]).rpartition("~")
    return run, int(number)
