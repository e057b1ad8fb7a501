"""Fence 8, sandbox: a receipt counts where its bytes still are.

Problem   a write was acknowledged, then the replica that held it vanished: to commit its step on the receipt alone is
          to build on a file that no disk has; and a tool that reached outside cannot be told from one that did not.
States    a step: pending ── write ──▶ fenced ── join ──▶ committed (an end, also when the replica goes later)
                                       │  ▲
                                       │  └─ write again: its bytes were lost, and it stays inside the workspace
                                       └─ join or write, its bytes were lost: rejected (may be written again), or
                                          compensated (an end) when it escapes the workspace
          a workspace: live from acquire until preempt, the next acquire, or silence.
          a write: held while its workspace is live and every acquire since has proved it.
Invariants
  B1 a step is committed under an epoch that is live at the join.
  B2 a step is committed while its bytes are on the live disk.
  B3 a step that escapes is compensated, never rejected; one that does not is never compensated.
  B4 committed and compensated are ends, and a committed step keeps its receipt.
  B5 a log index is never given out twice, and an epoch only grows.
  B6 a receipt names one write for ever.
  B7 a step's outcome is decided by its own write only: not while that is held, unless it is committed.
  B8 a workspace is live for the whole of its time after each sign of life, unless it is preempted.
  L1 every step can still be committed, unless it was compensated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from bus.models.model import Answer, Model, commit, compensate, duplicate, reject

__all__ = ["Acquired", "Place", "Sandbox", "State", "Step", "Write"]


class State(StrEnum):
    """What became of a step."""

    PENDING = "pending"
    FENCED = "fenced"
    """Written, not joined."""
    COMMITTED = "committed"
    REJECTED = "rejected"
    COMPENSATED = "compensated"


@dataclass(slots=True)
class Step:
    """A step as it was planned, and what became of it."""

    escapes: bool
    state: State = State.PENDING
    receipt: str | None = None
    """Its latest write's."""


@dataclass(slots=True)
class Write:
    """One accepted write."""

    step: str
    workspace: str
    epoch: int
    path: str
    digest: str
    log_index: int
    kept: bool = True
    """Not overwritten, and proved by every acquire since."""


@dataclass(slots=True)
class Place:
    """A workspace: its epoch is live while `beat_ms` is there and not too long ago."""

    epoch: int = 0
    last_index: int = 0
    beat_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Acquired:
    """An acquire that was granted."""

    workspace: str
    known_index: int
    epoch: int


class Sandbox(Model):
    """The workspaces of one batch, and the steps that write to them."""

    FENCE = "sandbox"
    CONFIG = "heartbeat_ms int1"
    OPS: ClassVar = {
        "plan": "step str, escapes bool",
        "acquire": "workspace str, known_index int, command drawn",
        "heartbeat": "workspace str, epoch int",
        "preempt": "workspace str, epoch int",
        "write": "workspace str, step str, epoch int, path str, digest str, receipt drawn",
        "join": "workspace str, step str, receipt str, epoch int",
    }

    def __init__(self, *, heartbeat_ms: int, draw: Callable[[], str] | None = None) -> None:
        """After `heartbeat_ms` of silence a workspace counts as preempted."""
        super().__init__(draw=draw)
        self.heartbeat_ms = heartbeat_ms
        self.steps: dict[str, Step] = {}
        self.places: dict[str, Place] = {}
        self.writes: dict[str, Write] = {}
        """Receipt → its write."""
        self.acquired: dict[str, Acquired] = {}
        """Command → what it was granted."""

    def plan(self, *, step: str, escapes: bool) -> Answer:
        if known := self.steps.get(step):
            return duplicate() if known.escapes == escapes else reject("step_conflict")

        self.steps[step] = Step(escapes)
        return commit()

    def acquire(self, *, workspace: str, known_index: int, command: str) -> Answer:
        if before := self.acquired.get(command):  # the id belongs to the command: this one was sent before
            if (before.workspace, before.known_index) != (workspace, known_index):
                return reject("command_reused")
            return duplicate(epoch=before.epoch, kept=self._on_disk(workspace, known_index))
        place = self._as_of_now(workspace)
        if known_index > place.last_index:
            return reject("unknown_index")

        epoch = place.epoch + 1
        self.places[workspace] = Place(epoch, place.last_index, self.now_ms)
        for write in self.writes.values():
            if write.workspace == workspace and write.log_index > known_index:
                write.kept = False
        self.acquired[command] = Acquired(workspace, known_index, epoch)
        return commit(epoch=epoch, kept=self._on_disk(workspace, known_index))

    def heartbeat(self, *, workspace: str, epoch: int) -> Answer:
        if not self._live(workspace, epoch):
            return reject("stale_epoch")

        self.places[workspace].beat_ms = self.now_ms
        return commit()

    def preempt(self, *, workspace: str, epoch: int) -> Answer:
        if not self._live(workspace, epoch):
            return reject("stale_epoch")

        self.places[workspace] = Place(epoch + 1, self.places[workspace].last_index)
        return commit()

    def write(self, *, workspace: str, step: str, epoch: int, path: str, digest: str, receipt: str) -> Answer:
        sent = self.writes.get(receipt)
        if sent and _content(sent) == (step, workspace, epoch, path, digest):  # this very command was sent before
            return duplicate(receipt=receipt, log_index=sent.log_index)
        at = self.steps.get(step)
        if at is None:
            return reject("unknown_step")
        if not self._live(workspace, epoch):
            return reject("stale_epoch")
        if at.state is State.COMPENSATED:
            return self._undone(step)
        if at.receipt is not None and (at.state is State.COMMITTED or (at.state is State.FENCED and self._held(at))):
            stands = self.writes[at.receipt]
            if (stands.workspace, stands.path, stands.digest) != (workspace, path, digest):
                return reject("step_conflict")
            return duplicate(receipt=at.receipt, log_index=stands.log_index)
        if at.state is State.FENCED and at.escapes:
            at.state = State.COMPENSATED
            return self._undone(step)
        if sent:
            return reject("receipt_reused")

        if at.receipt is not None:
            self.writes[at.receipt].kept = False
        place = self.places[workspace]
        place.last_index += 1
        self.writes[receipt] = Write(step, workspace, epoch, path, digest, place.last_index)
        at.state, at.receipt = State.FENCED, receipt
        return commit(receipt=receipt, log_index=place.last_index)

    def join(self, *, workspace: str, step: str, receipt: str, epoch: int) -> Answer:
        at = self.steps.get(step)
        if at is None:
            return reject("unknown_step")
        if at.state is State.COMMITTED:
            same = receipt == at.receipt
            return duplicate(state=at.state.value) if same else reject("unknown_receipt", state=at.state.value)
        if at.state is State.COMPENSATED:
            return self._undone(step, state=at.state.value)
        here = at.state is State.FENCED and self._write_of(at).workspace == workspace
        if self._ended(workspace, epoch):
            return self._lost(step, at) if here and self._gone(at) else reject("stale_epoch", state=at.state.value)
        if not here or receipt != at.receipt:
            return reject("unknown_receipt", state=at.state.value)
        if self._gone(at):
            return self._lost(step, at)

        at.state = State.COMMITTED
        return commit(state=at.state.value)

    def _lost(self, step: str, at: Step) -> Answer:
        """The step's own bytes are gone: that decides it."""
        if at.escapes:
            at.state = State.COMPENSATED
            return self._undone(step, state=at.state.value)
        at.state = State.REJECTED
        return reject("stale_epoch", state=at.state.value)

    def _undone(self, step: str, **fields: object) -> Answer:
        return compensate(undo_id=f"{step}~undo", **fields)

    def _ended(self, workspace: str, epoch: int) -> bool:
        """Whether the caller's life of the workspace is over."""
        return not self._live(workspace, epoch)

    def _gone(self, at: Step) -> bool:
        """Whether no live disk has the step's bytes."""
        return not self._held(at)

    def _held(self, at: Step) -> bool:
        write = self._write_of(at)
        return write.kept and self._as_of_now(write.workspace).beat_ms is not None

    def _write_of(self, at: Step) -> Write:
        assert at.receipt is not None
        return self.writes[at.receipt]

    def _live(self, workspace: str, epoch: int) -> bool:
        place = self._as_of_now(workspace)
        return place.beat_ms is not None and place.epoch == epoch

    def _as_of_now(self, workspace: str) -> Place:
        """The workspace, preempted by its silence if that was too long."""
        place = self.places.get(workspace) or Place()
        if place.beat_ms is not None and self.now_ms - place.beat_ms >= self.heartbeat_ms:
            return Place(place.epoch + 1, place.last_index)
        return place

    def _on_disk(self, workspace: str, up_to: int) -> list[str]:
        """The steps whose writes were proved, in log order."""
        found = [write for write in self.writes.values() if write.workspace == workspace and write.kept]
        return [write.step for write in sorted(found, key=_index) if write.log_index <= up_to]

    def state(self) -> dict[str, object]:
        """See `Model.state`."""
        return {
            "steps": {step: at.state.value for step, at in self.steps.items()},
            "held": {
                name: self._on_disk(name, place.last_index) if self._as_of_now(name).beat_ms is not None else []
                for name, place in self.places.items()
            },
            "compensations": sorted(step for step, at in self.steps.items() if at.state is State.COMPENSATED),
        }


def _index(write: Write) -> int:
    return write.log_index


def _content(write: Write) -> tuple[str, str, int, str, str]:
    return write.step, write.workspace, write.epoch, write.path, write.digest
