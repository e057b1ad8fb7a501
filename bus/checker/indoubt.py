"""Fence 3: silence decides nothing.

What is looked at: every pair of a run's call and its epoch, from its reservation to COMMIT or REJECT.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from bus.checker.board import Board
from bus.checker.said import Said
from bus.checker.setting import SLACK_MS, Fence, Setting

__all__ = ["InDoubt", "Pair", "Ref"]


class Ref(NamedTuple):
    """A call of a conversation."""

    run: str
    key: str
    epoch: int


@dataclass(slots=True)
class Pair:
    """What is known of one."""

    lease_id: str = ""
    slot: str = ""
    until_ms: int = 0
    prepared: bool = False
    outcome: str = ""
    """`COMMIT` or `REJECT` once it is decided."""


class InDoubt(Fence):
    """See the module's text. `pairs` is read by the predicates that join this fence with others."""

    def __init__(self, board: Board, setting: Setting) -> None:
        """Nothing of it is declared."""
        super().__init__()
        self._timed = setting.timed
        self.pairs: dict[Ref, Pair] = {}
        self._epochs: dict[str, int] = {}
        self._slots: dict[str, Ref] = {}
        self._p1 = board.add("indoubt.P1", "a call takes effect at most once", "binds")
        self._p2 = board.add("indoubt.P2", "each bind is by the call's own lease, prepared, in its epoch", "binds")
        self._p3 = board.add("indoubt.P3", "nothing is bound behind a tombstone", "binds")
        self._p4 = board.add("indoubt.P4", "a call is prepared once, by its latest lease, in its epoch", "prepares")
        self._p5 = board.add("indoubt.P5", "no call is reserved that is decided or may be out", "reservations")
        self._p6 = board.add("indoubt.P6", "no slot is held by two calls", "reservations")
        self._p7 = board.add("indoubt.P7", "a conversation's epoch never goes back", "turns and reservations")
        self._p8 = board.add("indoubt.P8", "what took effect is never tombstoned", "tombstones")
        self._p9 = board.add("indoubt.P9", "silence decides only behind the reservation's bound", "tombstones")
        self._p10 = board.add("indoubt.P10", "at the close every prepared call is decided", "prepared calls")
        self.on = {"turn": self._turn, "reserve": self._reserve, "prepare": self._prepare, "bind": self._bind}
        self.also = {"recover compensate": self._tombstone, "recover reject": self._tombstone}

    def _turn(self, said: Said) -> None:
        run, epoch = said.args["run"], said.args["epoch"]
        self._p7.see(epoch > self._epochs.get(run, 0), said, "the run is in epoch {}", self._epochs.get(run, 0))
        self._epochs[run] = epoch

    def _reserve(self, said: Said) -> None:
        ref, slot = _ref(said), said.args["slot"]
        at = self.pairs.setdefault(ref, Pair())
        self._p5.see(not at.outcome and not at.prepared, said, "{} is {}", ref.key, at.outcome or "prepared")
        self._p7.see(ref.epoch >= self._epochs.get(ref.run, 0), said, "epoch {} is over", ref.epoch)
        self._epochs[ref.run] = max(ref.epoch, self._epochs.get(ref.run, 0))
        if self._timed:
            other = self._slots.get(slot)
            holds = other is not None and other != ref and self._is_live(self.pairs[other], said.ms)
            self._p6.see(not holds, said, "{} is {}'s", slot, other and other.key)
        at.lease_id, at.slot, at.until_ms = said.args["lease_id"], slot, said.ms + said.args["ttl_ms"]
        self._slots[slot] = ref

    def _is_live(self, at: Pair, ms: int) -> bool:
        return not at.outcome and ms < at.until_ms - SLACK_MS

    def _prepare(self, said: Said) -> None:
        ref = _ref(said)
        at = self.pairs.setdefault(ref, Pair())
        fits = not at.prepared and not at.outcome and at.lease_id == said.args["lease_id"] and self._is_current(ref)
        self._p4.see(fits, said, "{} is {}", ref.key, at.outcome or ("prepared" if at.prepared else "another lease"))
        at.prepared = True

    def _bind(self, said: Said) -> None:
        ref = _ref(said)
        at = self.pairs.setdefault(ref, Pair())
        self._p1.see(at.outcome != "COMMIT", said, "{} took effect before", ref.key)
        self._p3.see(at.outcome != "REJECT", said, "{} was given up before", ref.key)
        fits = at.prepared and at.lease_id == said.args["lease_id"] and self._is_current(ref)
        self._p2.see(fits, said, "{} is held by {}", ref.key, at.lease_id or "nobody")
        at.outcome = "COMMIT"

    def _is_current(self, ref: Ref) -> bool:
        return ref.epoch == self._epochs.get(ref.run, 0)

    def _tombstone(self, said: Said) -> None:
        if said.verb == "reject" and said.reason != "never_started":
            return
        ref = _ref(said)
        at = self.pairs.setdefault(ref, Pair())
        if at.outcome == "REJECT":
            return  # asked again, answered again
        self._p8.see(at.outcome != "COMMIT" and at.prepared == (said.verb == "compensate"), said, "{} is out", ref.key)
        if self._timed:
            self._p9.see(said.ms >= at.until_ms - SLACK_MS, said, "the reservation had not run out")
        at.outcome = "REJECT"

    def end(self) -> None:
        """No call stays in doubt for ever."""
        for ref, at in self.pairs.items():
            if at.prepared:
                self._p10.see(bool(at.outcome), ref.key, "it is not decided")


def _ref(said: Said) -> Ref:
    return Ref(said.args["run"], said.args["key"], said.args["epoch"])
