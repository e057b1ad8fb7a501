"""What is known while a story is told: who holds the run, what has been said so far."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from workers.explaining.entries import Entry
from workers.explaining.story import BUS, PLANNER, Facts, Hold, Kind, Lane, Look, Step, plain

__all__ = ["Telling", "known_as", "many", "short"]

_DIGEST = re.compile("[0-9a-f]{16,}")
_HEAD = 10  # hex digits of a digest: enough to recognise it


def short(digest: object) -> str:
    """A digest as far as one needs it to recognise it."""
    return plain(digest)[:_HEAD]


def known_as(identity: str) -> str:
    """A judge or a candidate: its name, or its digest as far as one needs it."""
    return short(identity) if _DIGEST.fullmatch(identity) else identity


def many(count: int, noun: str) -> str:
    """`1 token`, `2,000 tokens`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


@dataclass(slots=True)
class Telling:
    """The story as far as it is told. `holder`, `scorer`: whoever has the run now."""

    steps: list[Step] = field(default_factory=list)
    facts: Facts = field(default_factory=Facts)
    lanes: dict[str, Lane] = field(default_factory=dict)
    """Lease id → the lane that it was granted to."""
    holder: Hold | None = None
    scorer: Hold | None = None
    delivered: set[str] = field(default_factory=set)
    """Messages that were claimed before."""
    places: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Place at an endpoint's desk → step and attempt of the call that took it."""
    start: int | None = None

    def ms(self, entry: Entry) -> int:
        """Since the first entry that was told. A server's clock may be set back; a story's is not."""
        if self.start is None:
            self.start = entry.ms
        return max(entry.ms - self.start, self.steps[-1].ms if self.steps else 0)

    def say(
        self,
        entry: Entry,
        source: Lane,
        target: Lane,
        text: str,
        *notes: str,
        look: Look = Look.GRANTED,
        reason: str = "",
    ) -> None:
        """Add an arrow."""
        told = tuple(note for note in notes if note)
        self.steps.append(Step(entry.id, self.ms(entry), source, target, text, look, reason, notes=told))

    def ask(self, entry: Entry, actor: Lane, text: str, *notes: str) -> bool:
        """Tell a command that was not applied now, as the arrow that ends at the bus. False when it was applied."""
        if entry.granted:
            return False
        refusal = entry.refusal
        if refusal is None:
            self.say(entry, actor, BUS, text, *notes, look=Look.REPEATED)
            return True
        look = Look.REFUSED if refusal.verb in ("reject", "replay") else Look.DOUBT
        by = f"{refusal.fence}.{refusal.op}"
        told = tuple(note for note in notes if note)
        reason = plain(refusal.reason or refusal.verb)
        self.steps.append(Step(entry.id, self.ms(entry), actor, BUS, text, look, reason, by, told))
        return True

    # --- who -----------------------------------------------------------------------------------------------

    def actor(self, entry: Entry, kind: Kind = Kind.WORKER) -> Lane:
        """Whose command this was: the holder of its lease, else a consumer by its name; else an operator."""
        lease = entry.text("lease_id")
        if lease in self.lanes:
            return self.lanes[lease]
        if entry.text("consumer"):
            return self.consumer(entry.text("consumer"), kind)
        if lease:
            return Lane(kind, f"of lease {short(lease)}")
        return PLANNER

    def consumer(self, name: str, kind: Kind) -> Lane:
        """The last lane of a consumer, or one that never held the run."""
        own = [lane for lane in self.lanes.values() if lane.kind is kind and lane.name == name]
        return own[-1] if own else Lane(kind, name)

    # --- how a hold begins and ends ------------------------------------------------------------------------

    def take(self, entry: Entry, lane: Lane) -> Hold:
        """The run is `lane`'s from here on."""
        self.lanes[entry.text("lease_id")] = lane
        hold = Hold(lane, entry.text("entry"), self.ms(entry))
        if lane.kind is Kind.WORKER:
            self.holder = hold
            self.facts.holds.append(hold)
        else:
            self.scorer = hold
            self.facts.scorings.append(hold)
        self.delivered.add(hold.entry)
        return hold

    def let_go(self, entry: Entry, kind: Kind, end: str) -> None:
        """Whoever had the run has it no more."""
        hold = self.holder if kind is Kind.WORKER else self.scorer
        if hold is not None:
            hold.ended_ms, hold.end = self.ms(entry), end
        if kind is Kind.WORKER:
            self.holder = None
        else:
            self.scorer = None

    def preempted(self, entry: Entry, kind: Kind) -> None:
        """Somebody else was granted the run while this one had it."""
        hold = self.holder if kind is Kind.WORKER else self.scorer
        if hold is not None:
            self.say(entry, BUS, hold.lane, "preempted: it was silent, its lease is void", look=Look.TAKEN)
            self.let_go(entry, kind, "fell silent, and was preempted")
