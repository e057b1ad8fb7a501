"""Fence 7, transcript: an append is a two-key compare on a hash chain.

Problem   a preempted worker's late event must not enter its successor's transcript, nor another run's; and a
          worker that lost its place must not write on top of a history that it has not seen.
States    a run is free or held by one lease (lease_id, gen); open, then sealed; a seq may bear an intention.
              lease ──▶ held ── append, intend … ──▶ seal ──▶ sealed
                 ▲        │ fence, or the next lease
                 └─ free ◀┘
Invariants
  P1 an accepted event's lease was granted to its run.       P2 its gen was the live gen.
  P3 its lease was the live one: nobody else's event is in.  P4 stale events are dead letters, never copied.
  P5 the head is the hash chain over the events; a committed prefix stays, and a sealed one never grows.
  P6 what was intended is resolved at its place, by its name, before the seal.
  P7 a run's generations grow.                               L1 a successor can bring every run to its seal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from bus.models.model import Answer, Model, Verb, commit, duplicate, in_doubt, reject

__all__ = ["EMPTY", "DeadLetter", "Event", "Intention", "Lease", "Run", "Transcript", "chain"]

EMPTY = "0" * 64
"""The head of a transcript without events."""


def chain(parent: str, payload: str) -> str:
    """The head after one more event."""
    return hashlib.sha256((parent + payload).encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to act for a run. Both are compared: a number alone may repeat after a failover."""

    lease_id: str
    gen: int


@dataclass(frozen=True, slots=True)
class Intention:
    """An effect announced for a seq; only an event that quotes its digest may stand there."""

    gen: int
    digest: str


@dataclass(slots=True)
class Run:
    """One run's transcript, and who holds it."""

    live: Lease | None = None
    gen: int = 0
    """The last one minted."""
    events: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    """The head after each event."""
    intentions: dict[int, Intention] = field(default_factory=dict)
    sealed: bool = False

    @property
    def head(self) -> str:
        return self.heads[-1] if self.heads else EMPTY

    @property
    def length(self) -> int:
        return len(self.events)

    @property
    def unresolved(self) -> list[int]:
        return sorted(self.intentions)


@dataclass(frozen=True, slots=True)
class Event:
    """An event as it was presented."""

    run: str
    lease_id: str
    gen: int
    parent: str
    seq: int
    payload: str
    intent: str | None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A refused event, kept whole."""

    reason: str
    event: Event


class Transcript(Model):
    """The transcripts of one batch."""

    FENCE = "transcript"
    CONFIG = ""
    OPS: ClassVar = {
        "lease": "run str, lease_id str",
        "fence": "run str, gen int",
        "resume": "run str, lease_id str, gen int",
        "append": "run str, lease_id str, gen int, parent str, seq int1, payload str, intent str?",
        "intend": "run str, lease_id str, gen int, parent str, seq int1, digest str",
        "seal": "run str, lease_id str, gen int, head str",
    }

    def __init__(self, *, draw: Callable[[], str] | None = None) -> None:
        """An empty batch."""
        super().__init__(draw=draw)
        self.runs: dict[str, Run] = {}
        self.granted: dict[str, str] = {}
        """Lease id → the run that it was granted to, for ever: a late message can't take a run back."""
        self.dead_letters: list[DeadLetter] = []

    def lease(self, *, run: str, lease_id: str) -> Answer:
        at = self._at(run)
        if at.sealed:
            return reject("sealed")
        if at.live is not None and at.live.lease_id == lease_id:
            return duplicate(gen=at.gen, head=at.head, length=at.length, unresolved=at.unresolved)
        if lease_id in self.granted:
            return reject("lease_reused")

        at.gen += 1
        at.live = Lease(lease_id, at.gen)
        self.runs[run] = at
        self.granted[lease_id] = run
        return commit(gen=at.gen, head=at.head, length=at.length, unresolved=at.unresolved)

    def fence(self, *, run: str, gen: int) -> Answer:
        at = self._at(run)
        if at.live is None or at.live.gen != gen:
            return reject("stale_gen")

        at.live = None
        return commit()

    def resume(self, *, run: str, lease_id: str, gen: int) -> Answer:
        at = self._at(run)
        if at.live != Lease(lease_id, gen):
            return reject("stale")

        return commit(head=at.head, length=at.length)

    def append(
        self,
        *,
        run: str,
        lease_id: str,
        gen: int,
        parent: str,
        seq: int,
        payload: str,
        intent: str | None = None,
    ) -> Answer:
        event = Event(run, lease_id, gen, parent, seq, payload, intent)
        answer = self._append(event)
        if answer.verb is Verb.REJECT and answer.reason is not None:
            self.dead_letters.append(DeadLetter(answer.reason, event))
        return answer

    def _append(self, event: Event) -> Answer:
        at = self._at(event.run)
        head = chain(event.parent, event.payload)
        if not_holder := self._not_holder(event.run, event.lease_id, event.gen):
            return not_holder
        if at.sealed:
            return reject("sealed")
        if event.seq <= at.length and at.heads[event.seq - 1] == head:
            return duplicate(head=head)
        if self._forged(at, event.parent):
            return reject("forged_prefix")
        if event.seq != at.length + 1:
            return reject("seq_gap")
        intended = at.intentions.get(event.seq)
        if event.intent != (intended.digest if intended else None):
            return reject("intent_mismatch")

        at.events.append(event.payload)
        at.heads.append(head)
        at.intentions.pop(event.seq, None)
        return commit(head=head)

    def intend(self, *, run: str, lease_id: str, gen: int, parent: str, seq: int, digest: str) -> Answer:
        at = self._at(run)
        if not_holder := self._not_holder(run, lease_id, gen):
            return not_holder
        if at.sealed:
            return reject("sealed")
        if intended := at.intentions.get(seq):
            if intended.gen != gen:
                return in_doubt("dangling")
            return duplicate() if intended.digest == digest else reject("intent_conflict")
        if self._forged(at, parent):
            return reject("forged_prefix")
        if seq <= at.length:
            return reject("seq_gap")

        at.intentions[seq] = Intention(gen, digest)
        return commit()

    def seal(self, *, run: str, lease_id: str, gen: int, head: str) -> Answer:
        at = self._at(run)
        if not_holder := self._not_holder(run, lease_id, gen):
            return not_holder
        if at.sealed:
            return duplicate() if head == at.head else reject("sealed")
        if self._forged(at, head):
            return reject("forged_prefix")
        if at.intentions:
            return in_doubt("unresolved_intent")

        at.sealed = True
        return commit()

    def _not_holder(self, run: str, lease_id: str, gen: int) -> Answer | None:
        """The three checks that append, intend and seal share."""
        live = self._at(run).live
        if self.granted.get(lease_id, run) != run:
            return reject("run_mismatch")
        if live is None or live.gen != gen:
            return reject("stale_gen")
        if live.lease_id != lease_id:
            return reject("lease_mismatch")
        return None

    def _forged(self, at: Run, parent: str) -> bool:
        """The holder must name the committed prefix that it continues."""
        return parent != at.head

    def _at(self, run: str) -> Run:
        """The run; one that nobody was ever granted is empty, and is kept only once a lease is granted."""
        return self.runs.get(run) or Run()

    def state(self) -> dict[str, object]:
        """See `Model.state`."""
        return {
            "transcripts": {
                run: {
                    "events": list(at.events),
                    "head": at.head,
                    "sealed": at.sealed,
                    "live": at.live is not None,
                    "unresolved": at.unresolved,
                }
                for run, at in self.runs.items()
            },
            "dead_letters": [
                {
                    "reason": letter.reason,
                    "run": letter.event.run,
                    "lease_id": letter.event.lease_id,
                    "seq": letter.event.seq,
                    "payload": letter.event.payload,
                }
                for letter in self.dead_letters
            ],
        }
