"""Fence 10: spend is counted per chunk.

What is looked at: every attempt's chunks, added up here and compared with what was answered, and the budget at each
admission. S1 to S4 are the specification's own names.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bus.checker.board import Board
from bus.checker.said import Said
from bus.checker.setting import Fence, Setting

__all__ = ["Ledger"]

_COUNTS = ("compute_retries", "judge_slots")


@dataclass(slots=True)
class _Attempt:
    estimate: int
    state: str = "open"
    billed: int = 0
    durable: int = 0
    watermark: int = 0
    settled: bool = False
    waiting: dict[int, tuple[int, bool, bool]] = field(default_factory=dict)
    """Sequence number → tokens, durable, refused; of chunks that the watermark has not passed."""

    @property
    def reserved(self) -> int:
        """What it may still spend."""
        return max(self.estimate - self.billed, 0) if self.state == "open" else 0

    @property
    def figures(self) -> tuple[int, int, int]:
        """As they are answered."""
        return self.billed, self.durable, self.watermark

    def came(self, seq: int) -> bool:
        """A chunk of this number was seen."""
        return seq <= self.watermark or seq in self.waiting

    def keep(self, seq: int, tokens: int) -> None:
        """A chunk is safe."""
        self.durable += tokens
        self.waiting[seq] = (tokens, True, False)
        while (following := self.waiting.get(self.watermark + 1)) is not None and following[1]:
            self.watermark += 1
            del self.waiting[self.watermark]


class Ledger(Fence):
    """See the module's text. The totals are read by the predicates that compare with the endpoint's books."""

    def __init__(self, board: Board, setting: Setting) -> None:
        """A batch that counts no tokens has none to spend."""
        super().__init__()
        counts = any(name in setting.policy["limits"] for name in _COUNTS)
        self._budget = setting.limit("budget") if counts else setting.limit("budget", 0)
        self._attempts: dict[tuple[str, int], _Attempt] = {}
        self._committed: set[str] = set()
        self.spent = self.durable = self.reserved = 0
        self._s1 = board.add("ledger.S1", "what is answered adds up: spent = durable + orphan", "chunks")
        self._s2 = board.add("ledger.S2", "a step has at most one committed attempt", "attempts committed")
        self._s3 = board.add(
            "ledger.S3", "a committed attempt is whole: each chunk came and is durable", "attempts committed"
        )
        self._s4 = board.add("ledger.S4", "spent, reserved and estimate stay within the budget", "attempts admitted")
        self._p5 = board.add(
            "ledger.P5", "an attempt's number is used once, and not behind a commit", "attempts admitted"
        )
        self._p6 = board.add(
            "ledger.P6", "a chunk is counted once, and its content in an open attempt", "chunks counted"
        )
        self._p7 = board.add(
            "ledger.P7", "what is settled was closed, is settled once, and not below its durable", "settlements"
        )
        self._p8 = board.add("ledger.P8", "only an open attempt is given up", "attempts given up")
        self._p9 = board.add(
            "ledger.P9", "who was refused for the budget would have passed it", "refusals for the budget"
        )
        self.on = {
            "admit": self._admit,
            "chunk": self._chunk,
            "done": self._done,
            "cut": self._close,
            "abandon": self._close,
            "reconcile": self._reconcile,
        }
        self.also = {
            "admit reject": self._refused,
            "chunk duplicate": self._again,
            "chunk reject": self._late,
            "done reject": self._ended,
        }

    @property
    def open(self) -> int:
        """Attempts that have not ended."""
        return sum(at.state == "open" for at in self._attempts.values())

    def _at(self, said: Said) -> _Attempt | None:
        return self._attempts.get((said.args["step"], said.args["attempt"]))

    def _admit(self, said: Said) -> None:
        name, estimate = (said.args["step"], said.args["attempt"]), said.args["estimate"]
        self._p5.see(name not in self._attempts and name[0] not in self._committed, said, "{} was used before", name)
        sum_of = self.spent + self.reserved + estimate
        self._s4.see(
            sum_of <= self._budget, said, "{} + {} + {} > {}", self.spent, self.reserved, estimate, self._budget
        )
        self._attempts[name] = _Attempt(estimate)
        self.reserved += estimate

    def _refused(self, said: Said) -> None:
        name, estimate = (said.args["step"], said.args["attempt"]), said.args["estimate"]
        if said.reason == "over_budget":
            sum_of = self.spent + self.reserved + estimate
            self._p9.see(
                sum_of > self._budget, said, "{} and {} fit into {}", sum_of - estimate, estimate, self._budget
            )
        if said.reason in ("over_budget", "already_committed") and name not in self._attempts:
            self._attempts[name] = _Attempt(estimate, "abandoned")

    def _chunk(self, said: Said) -> None:
        at, seq, tokens = self._at(said), said.args["seq"], said.args["tokens"]
        is_new = at is not None and at.state == "open" and not at.came(seq)
        self._p6.see(is_new, said, "the attempt is {}, or number {} came before", at and at.state, seq)
        if at is None:
            return
        before = at.figures, at.reserved
        at.billed += tokens
        if said.args["durable"]:
            at.keep(seq, tokens)
        else:
            at.waiting[seq] = (tokens, False, False)
        self._follow(said, at, before)

    def _again(self, said: Said) -> None:
        """The first tokens stand; it may have become durable meanwhile."""
        at, seq = self._at(said), said.args["seq"]
        if not self._p6.see(at is not None and at.came(seq), said, "number {} never came", seq) or at is None:
            return
        before = at.figures, at.reserved
        tokens, durable, refused = at.waiting.get(seq, (0, True, False))
        if said.args["durable"] and not durable and not refused and not at.settled:
            at.keep(seq, tokens)
        self._follow(said, at, before)

    def _late(self, said: Said) -> None:
        """The spend is real, and the content is refused."""
        at, seq = self._at(said), said.args["seq"]
        if said.reason != "attempt_closed" or at is None:
            return
        before = at.figures, at.reserved
        self._p6.see(at.state != "open" and not at.came(seq), said, "the attempt is {}", at.state)
        at.waiting[seq] = (said.args["tokens"], False, True)
        at.billed += 0 if at.settled else said.args["tokens"]
        self._follow(said, at, before)

    def _follow(self, said: Said, at: _Attempt, before: tuple[tuple[int, int, int], int]) -> None:
        (billed, durable, _), reserved = before
        self.spent += at.billed - billed
        self.durable += at.durable - durable
        self.reserved += at.reserved - reserved
        told = tuple(said.answer.get(name) for name in ("billed", "durable", "watermark"))
        adds_up = told == at.figures and at.durable <= at.billed and self.durable <= self.spent
        self._s1.see(adds_up, said, "answered {}, added up {}", told, at.figures)

    def _done(self, said: Said) -> None:
        at, step, last = self._at(said), said.args["step"], said.args["last_seq"]
        self._s2.see(step not in self._committed, said, "{} was committed before", step)
        is_whole = at is not None and at.state == "open" and at.billed == at.durable
        came = at is not None and all(at.came(seq) for seq in range(at.watermark + 1, last + 1))
        self._s3.see(is_whole and came and last > 0, said, "of {} are durable {}", at and at.billed, at and at.durable)
        self._committed.add(step)
        self._end_as(said, "committed")

    def _ended(self, said: Said) -> None:
        ends = {"not_durable": "cut", "already_committed": "abandoned"}
        if said.reason in ends:
            self._end_as(said, ends[said.reason])

    def _close(self, said: Said) -> None:
        at = self._at(said)
        self._p8.see(at is not None and at.state == "open", said, "it is {}", at and at.state)
        self._end_as(said, "cut" if said.op == "cut" else "abandoned")

    def _end_as(self, said: Said, state: str) -> None:
        at = self._at(said)
        if at is not None:
            self.reserved -= at.reserved
            at.state = state

    def _reconcile(self, said: Said) -> None:
        at, billed = self._at(said), said.args["gateway_billed"]
        fits = at is not None and at.state != "open" and not at.settled and billed >= at.durable
        self._p7.see(fits, said, "the attempt is {}, durable {}", at and at.state, at and at.durable)
        if at is not None:
            self.spent += billed - at.billed
            at.billed, at.settled = billed, True
