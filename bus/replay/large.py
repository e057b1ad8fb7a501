"""The reference models, made fit for a million entries. What they decide is theirs; only how they look it up is new.

The models say what a rule is, and some say it by looking through everything that they hold. That is clear, and too slow
for a whole history: here sums are kept as running totals, and whatever is looked for has an index.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from bus.models import Answer, Verb
from bus.models.histogram import Histogram
from bus.models.indoubt import InDoubt, Pair, Ref
from bus.models.ledger import AttemptId, Ledger, State
from bus.models.transcript import Transcript

__all__ = ["LargeHistogram", "LargeInDoubt", "LargeLedger", "LargeTranscript"]


class LargeHistogram(Histogram):
    """Learns the names of its runs as they are admitted: a declaration says only how many there are."""

    def __init__(self, *, quorum: int, bins: list[str], max_in_flight: int) -> None:
        """As the batch declared them."""
        super().__init__(intended=[], quorum=quorum, bins=bins, max_in_flight=max_in_flight)
        self._named: set[str] = set()
        self.intended = cast("frozenset[str]", self._named)  # it is asked for membership and length, and grows

    def name(self, run: str) -> None:
        """A run of the batch."""
        self._named.add(run)


@dataclass(slots=True)
class _Figures:
    billed: int = 0
    durable: int = 0
    reserved: int = 0


class LargeLedger(Ledger):
    """With totals."""

    def __init__(self, *, budget: int) -> None:
        """In tokens."""
        super().__init__(budget=budget)
        self._totals = _Figures()
        self._done: set[str] = set()

    @property
    def spent(self) -> int:
        """All that was billed."""
        return self._totals.billed

    @property
    def durable(self) -> int:
        """What of it is safely stored."""
        return self._totals.durable

    @property
    def reserved(self) -> int:
        """What open attempts may still spend."""
        return self._totals.reserved

    def decide(self, op: str, args: Mapping[str, object]) -> Answer:
        """See `Model.decide`; the totals follow the one attempt that it may change."""
        step, number = args.get("step"), args.get("attempt")
        if not isinstance(step, str) or not isinstance(number, int):
            return super().decide(op, args)
        name = AttemptId(step, number)
        before = self._figures_of(name)
        answer = super().decide(op, args)
        after = self._figures_of(name)
        self._totals.billed += after.billed - before.billed
        self._totals.durable += after.durable - before.durable
        self._totals.reserved += after.reserved - before.reserved
        if op == "done" and self.attempts.get(name) and self.attempts[name].state is State.COMMITTED:
            self._done.add(step)
        return answer

    def _is_committed(self, step: str) -> bool:
        return step in self._done

    def _figures_of(self, name: AttemptId) -> _Figures:
        at = self.attempts.get(name)
        return _Figures() if at is None else _Figures(at.billed, at.durable, at.reserved)


class LargeInDoubt(InDoubt):
    """With an index of the slots."""

    def __init__(self) -> None:
        """An empty batch."""
        super().__init__()
        self._in_slot: dict[str, set[Ref]] = {}

    def holders(self, slot: str) -> list[Pair]:
        """The undecided calls that were given a slot; one that is decided never needs it again."""
        refs = self._in_slot.get(slot, set())
        for ref in [ref for ref in refs if self.pairs[ref].decided or self.pairs[ref].slot != slot]:
            refs.discard(ref)
        return [self.pairs[ref] for ref in refs]

    def reserve(self, *, run: str, slot: str, key: str, epoch: int, ttl_ms: int, lease_id: str) -> Answer:
        """See `InDoubt.reserve`, which looks at every call for one that has the slot: it is shown those that might."""
        ref, every = Ref(run, key, epoch), self.pairs
        self.holders(slot)
        near = {one: every[one] for one in self._in_slot.get(slot, ())}
        if ref in every:
            near[ref] = every[ref]
        self.pairs = near
        try:
            answer = super().reserve(run=run, slot=slot, key=key, epoch=epoch, ttl_ms=ttl_ms, lease_id=lease_id)
        finally:
            every.update(self.pairs)
            self.pairs = every
        if answer.verb is Verb.COMMIT:
            self._in_slot.setdefault(slot, set()).add(ref)
        return answer


class LargeTranscript(Transcript):
    """Keeps the heads of the events, and not what they say."""

    def append(
        self, *, run: str, lease_id: str, gen: int, parent: str, seq: int, payload: str, intent: str | None = None
    ) -> Answer:
        """See `Transcript.append`."""
        answer = super().append(
            run=run, lease_id=lease_id, gen=gen, parent=parent, seq=seq, payload=payload, intent=intent
        )
        self.dead_letters.clear()
        if answer.verb is Verb.COMMIT:
            self.runs[run].events[-1] = ""
        return answer
