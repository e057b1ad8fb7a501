"""Sealed answers as a naive policy would have taken them, beside those that were scored."""

from __future__ import annotations

from collections.abc import Iterator

from bus.policies.arrivals import Sealing, in_order
from bus.policies.policy import Course, claim
from bus.policies.values import Claim, Proof

__all__ = ["Seals"]


class Seals:
    """A sealed answer a run, whichever a policy keeps."""

    def __init__(self, course: Course) -> None:
        """`course`: how the batch really went."""
        self._course = course
        self._kept: dict[str, Sealing] = {}

    def keep_first(self, sealing: Sealing) -> None:
        """Nothing replaces an answer that is there."""
        self._kept.setdefault(sealing.run, sealing)

    def keep(self, sealing: Sealing) -> None:
        """The last one stands."""
        self._kept[sealing.run] = sealing

    def claims(self) -> tuple[Claim, ...]:
        """Other texts, and other transcripts: those differ also where an export does not hold the refused text."""
        of = len(self._course.seals)
        return (
            claim("answers_replaced", of, "sealed answers", self._replaced(by_text=True)),
            claim("transcripts_replaced", of, "sealed transcripts", self._replaced(by_text=False)),
        )

    def _replaced(self, *, by_text: bool) -> Iterator[Proof]:
        for run, true in self._course.seals.items():
            kept = self._kept.get(run)
            if kept is None or kept.head == true.head:
                continue
            other_text = bool(kept.answer and true.answer) and kept.answer != true.answer
            if by_text and not other_text:
                continue
            what = "another answer" if by_text else f"the transcript with head {kept.head[:12]}"
            says = f"{what} of generation {kept.gen} ({kept.told}) would have been scored, not generation {true.gen}'s"
            yield Proof(run, in_order(kept, true), says)
