"""Fence 5: a gate reads a closed set.

What is looked at: which epoch and digest each run was fenced under, its one end, and what the batch closed over.
"""

from __future__ import annotations

from dataclasses import dataclass

from bus.checker.board import Board
from bus.checker.said import Said
from bus.checker.setting import Fence, Setting

__all__ = ["Histogram", "Scored"]


@dataclass(slots=True)
class Scored:
    """One run in the histogram."""

    epoch: int = 0
    digest: str | None = None
    row: tuple[str, int, str, str] | None = None
    """Its accepted score: digest, epoch, bin, value."""
    hole: str | None = None

    @property
    def ended(self) -> bool:
        """It is scored or a hole."""
        return self.row is not None or self.hole is not None


class Histogram(Fence):
    """See the module's text. `runs`, `state` and `accepted` are read by the predicates of the close."""

    def __init__(self, board: Board, setting: Setting) -> None:
        """Quorum, bins, and how many runs may be in the scorers' hands are declared with the batch."""
        super().__init__()
        policy = setting.policy
        self._intended: int = policy["intended"]
        self._quorum: int = policy["quorum"]
        self._bins: list[str] = policy["bins"]
        self._most: int = policy["max_in_flight"]
        self.runs: dict[str, Scored] = {}
        self.state = "open"
        self.snapshot_id: str | None = None
        """As the close names it; below the quorum it names none."""
        self.accepted = self.holes = 0
        self._in_flight = 0
        self._drained = False
        moves = "scores, holes and fences"
        self._p1 = board.add("histogram.P1", "after the close no bin moves", moves)
        self._p2 = board.add("histogram.P2", "a run ends once: scored, or a hole", "ends")
        self._p3 = board.add("histogram.P3", "each end is of the epoch and digest that were fenced last", "ends")
        self._p4 = board.add("histogram.P4", "a run's scoring epochs grow, above every restart", "fences")
        self._p5 = board.add("histogram.P5", "a run's digest is that of its first fence", "fences")
        self._p6 = board.add("histogram.P6", "runs in the scorers' hands stay within their bound", "fences")
        self._p7 = board.add("histogram.P7", "each score is in a declared bin", "scores")
        self._p8 = board.add("histogram.P8", "the close came when all was drained and all had ended", "closes")
        self._p9 = board.add("histogram.P9", "it says what was accepted, and closed if that is a quorum", "closes")
        self._p10 = board.add("histogram.P10", "a rate is told of a closed set only, and is its own", "rates")
        self._p11 = board.add("histogram.P11", "what was refused as stale or late was", "refusals as stale or late")
        self._floor = 0
        self.on = {
            "fence": self._fence,
            "score": self._score,
            "abandon": self._abandon,
            "drain": self._drain,
            "close": self._close,
            "pass_rate": self._rate,
        }
        self.also = {"close reject": self._close, "score reject": self._refused, "abandon reject": self._refused}

    def _run(self, said: Said) -> Scored:
        return self.runs.setdefault(said.args["run"], Scored())

    def _fence(self, said: Said) -> None:
        run, epoch = self._run(said), said.args["epoch"]
        self._p1.see(self.state == "open", said, "the batch is closed")
        self._p4.see(epoch > max(run.epoch, self._floor), said, "epoch {} behind {}", epoch, run.epoch)
        if run.digest is None:
            run.digest = said.args["digest"]
            self._in_flight += 1
        self._p5.see(run.digest == said.args["digest"], said, "it was fenced under {}", run.digest)
        self._p6.see(self._in_flight <= self._most and not run.ended, said, "{} are in flight", self._in_flight)
        run.epoch = epoch

    def _score(self, said: Said) -> None:
        run, args = self._run(said), said.args
        is_fenced = run.epoch > 0 and (run.epoch, run.digest) == (args["epoch"], args["digest"])
        self._ends(said, run, is_fenced)
        self._p7.see(args["bin"] in self._bins, said, "{} was not declared", args["bin"])
        run.row = (args["digest"], args["epoch"], args["bin"], args["value"])
        self.accepted += 1

    def _abandon(self, said: Said) -> None:
        run = self._run(said)
        self._ends(said, run, run.epoch == said.args["epoch"])
        run.hole = said.args["why"]
        self.holes += 1

    def _ends(self, said: Said, run: Scored, is_fenced: bool) -> None:
        self._p1.see(self.state == "open", said, "the batch is closed")
        self._p2.see(not run.ended, said, "it had ended before")
        self._p3.see(is_fenced, said, "it was fenced under epoch {} and {}", run.epoch, run.digest)
        self._in_flight -= run.digest is not None and not run.ended

    def _refused(self, said: Said) -> None:
        if said.reason == "after_close":
            self._p11.see(self.state != "open", said, "the batch was open")
        elif said.reason == "stale_epoch":
            run = self._run(said)
            is_stale = run.epoch != said.args["epoch"] or run.epoch == 0
            self._p11.see(is_stale, said, "it was fenced under epoch {}", run.epoch)

    def _drain(self, said: Said) -> None:
        self._drained = True

    def _close(self, said: Said) -> None:
        if self.state != "open" or (not said.done and said.reason != "below_quorum"):
            return
        whole = self.accepted + self.holes == self._intended
        self._p8.see(
            self._drained and whole, said, "{} and {} of {} had ended", self.accepted, self.holes, self._intended
        )
        is_quorum = (self.accepted >= self._quorum) == said.done
        self._p9.see(is_quorum and said.answer.get("accepted", self.accepted) == self.accepted, said, "it is not so")
        self.state = "closed" if said.done else "inconclusive"
        self.snapshot_id = said.answer.get("snapshot_id")

    def _rate(self, said: Said) -> None:
        passed = sum(run.row is not None and run.row[2] == self._bins[0] for run in self.runs.values())
        told = [said.answer.get(name) for name in ("passed", "accepted", "holes")]
        self._p10.see(self.state == "closed" and told == [passed, self.accepted, self.holes], said, "it is {}", told)

    def void(self, floor: int) -> None:
        """Scoring epochs up to it were given out before."""
        self._floor = max(self._floor, floor)
