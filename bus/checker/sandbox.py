"""Fence 8: a receipt counts where its bytes still are.

What is looked at: the lives of each workspace, which writes its disk still has, and how each step was decided. A
heartbeat leaves no entry; a workspace that was given up in silence shows in the next epoch, which leaves one out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bus.checker.board import Board
from bus.checker.said import Said
from bus.checker.setting import Fence, Setting

__all__ = ["Sandbox"]


@dataclass(slots=True)
class _Step:
    escapes: bool
    state: str = "pending"
    receipt: str = ""
    workspace: str = ""


@dataclass(slots=True)
class _Workspace:
    epoch: int = 0
    live: bool = False
    last: int = 0
    """The highest index of its log."""
    disk: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Receipt → step and index, of the writes that its disk has."""


class Sandbox(Fence):
    """See the module's text."""

    def __init__(self, board: Board, setting: Setting) -> None:
        """Nothing of it can be checked by the clock."""
        super().__init__()
        self._steps: dict[str, _Step] = {}
        self._places: dict[str, _Workspace] = {}
        self._receipts: set[str] = set()
        self._p1 = board.add("sandbox.P1", "no step is committed under an epoch that is not live", "steps committed")
        self._p2 = board.add("sandbox.P2", "nor without its own bytes on the live disk", "steps committed")
        self._p3 = board.add("sandbox.P3", "a step is decided once, and a compensated one for good", "decisions")
        self._p4 = board.add(
            "sandbox.P4", "a workspace's epochs grow, and it keeps what it proves", "lives of workspaces"
        )
        self._p5 = board.add("sandbox.P5", "each write is of a planned step, by a live epoch", "writes")
        self._p6 = board.add("sandbox.P6", "receipts and log indexes are never reused", "writes")
        self._p7 = board.add("sandbox.P7", "what may have left is compensated, all else is rejected", "losses decided")
        self._p8 = board.add(
            "sandbox.P8", "a workspace is taken away by the epoch that it has", "preemptions of workspaces"
        )
        self.on = {
            "plan": self._plan,
            "acquire": self._acquire,
            "preempt": self._preempt,
            "write": self._write,
            "join": self._join,
        }
        self.also = {
            "write compensate": self._compensate,
            "join compensate": self._compensate,
            "join reject": self._reject,
        }

    def _place(self, said: Said) -> _Workspace:
        return self._places.setdefault(said.args["workspace"], _Workspace())

    def _plan(self, said: Said) -> None:
        self._steps.setdefault(said.args["step"], _Step(said.args["escapes"]))

    def _acquire(self, said: Said) -> None:
        place, known = self._place(said), said.args["known_index"]
        place.disk = {receipt: at for receipt, at in place.disk.items() if at[1] <= known}
        kept = [step for step, _ in sorted(place.disk.values(), key=lambda at: at[1])]
        epoch = said.answer["epoch"]
        fits = epoch > place.epoch and known <= place.last and list(said.answer["kept"]) == kept
        self._p4.see(fits, said, "behind epoch {}, with {}", place.epoch, kept)
        place.epoch, place.live = epoch, True

    def _preempt(self, said: Said) -> None:
        place = self._place(said)
        self._p8.see(place.live and place.epoch == said.args["epoch"], said, "its epoch is {}", place.epoch)
        place.epoch, place.live = place.epoch + 1, False

    def _write(self, said: Said) -> None:
        place, at, receipt = self._place(said), self._steps.get(said.args["step"]), said.args["receipt"]
        is_live = place.live and place.epoch == said.args["epoch"]
        self._p5.see(
            is_live and at is not None, said, "epoch {} is the last, the step {}", place.epoch, at and at.state
        )
        is_new = receipt not in self._receipts and said.answer["log_index"] == place.last + 1
        self._p6.see(is_new, said, "{} behind index {}", receipt, place.last)
        if at is None:
            return
        is_again = at.state == "fenced" and at.escapes
        self._p3.see(at.state not in ("committed", "compensated") and not is_again, said, "it is {}", at.state)
        place.disk.pop(at.receipt, None)
        place.last = said.answer["log_index"]
        place.disk[receipt] = (said.args["step"], place.last)
        at.state, at.receipt, at.workspace = "fenced", receipt, said.args["workspace"]
        self._receipts.add(receipt)

    def _join(self, said: Said) -> None:
        place, at = self._place(said), self._steps.get(said.args["step"])
        self._p1.see(place.live and place.epoch == said.args["epoch"], said, "epoch {} is the last", place.epoch)
        is_own = at is not None and (at.receipt, at.workspace) == (said.args["receipt"], said.args["workspace"])
        self._p2.see(is_own and said.args["receipt"] in place.disk, said, "its bytes are not there")
        self._p3.see(at is not None and at.state == "fenced", said, "it is {}", at and at.state)
        if at is not None:
            at.state = "committed"

    def _compensate(self, said: Said) -> None:
        at = self._steps.get(said.args["step"])
        if at is None or at.state != "compensated":
            self._p7.see(at is not None and at.escapes and at.state == "fenced", said, "it is {}", at and at.state)
        if at is not None:
            at.state = "compensated"

    def _reject(self, said: Said) -> None:
        at = self._steps.get(said.args["step"])
        if said.answer.get("state") != "rejected" or (at is not None and at.state == "rejected"):
            return
        self._p7.see(at is not None and not at.escapes and at.state == "fenced", said, "it is {}", at and at.state)
        if at is not None:
            at.state = "rejected"
