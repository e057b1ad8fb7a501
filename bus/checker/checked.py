"""What a checked history comes to."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Books", "Check", "Checked", "Effects", "Leases", "Preempted", "Tokens"]


@dataclass(frozen=True, slots=True)
class Check:
    """One property, and what was found of it."""

    property: str
    """`transcript.P2: each accepted event's generation was live`; the part before the colon is its stable id."""
    examined: int
    violations: int
    entries: tuple[str, ...]
    """The ids of those that broke it, the first twenty; of an end state, the run, intent or key."""
    says: str
    """All of it in a line."""
    why: str = ""
    """What is wrong with the first of them."""

    @builtins.property  # the field above has taken the name
    def id(self) -> str:
        """`transcript.P2`."""
        return self.property.partition(":")[0]

    def as_json(self) -> dict[str, Any]:
        """The object that stands in a report's `checks`."""
        return {"property": self.property, "examined": self.examined, "violations": self.violations}


@dataclass(frozen=True, slots=True)
class Books:
    """What an endpoint itself counted, by its own means. None: it was not asked."""

    tokens: int | None = None
    """Billed by it, over all requests of this batch."""
    effects: Mapping[str, int] | None = None
    """Key on the wire → how often the effect happened. A key that is not there: never."""
    undone: Mapping[str, int] | None = None
    """Key on the wire of the effect → how often it was undone."""
    tools: frozenset[str] | None = None
    """The tools that lead to this endpoint; None: all of the batch's."""


@dataclass(frozen=True, slots=True)
class Leases:
    """How leases were granted and lost."""

    granted: int
    """To workers, for a run."""
    scoring: int
    """To scorers."""
    handed_back: int
    """By either, of their own accord."""
    voided: int
    """Still held when a restart of the server made them void."""


@dataclass(frozen=True, slots=True)
class Preempted:
    """A lease that a later claim superseded: its holder had neither handed it back nor ended the run."""

    run: str
    lease_id: str
    consumer: str
    scoring: bool
    """The lease was a scorer's."""
    granted_ms: int
    """When, by the server's time in ms since the epoch, like the next three."""
    heard_ms: int
    """Its last step that was applied."""
    superseded_ms: int
    """The claim."""
    by: str
    """Who claimed."""


@dataclass(frozen=True, slots=True)
class Effects:
    """Tools' calls that ended committed and were not undone."""

    committed: int
    external: int | None
    """How often the endpoint says that they happened; None: nobody asked it, or not of one of them."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens on both sides."""

    ledger: int
    """Spent, by the history: durable and orphan."""
    durable: int
    open: int
    """Attempts that were admitted and have not ended: until they are swept the ledger may still grow."""
    lab: int | None
    """By the endpoint's own books; None: it was not asked."""


@dataclass(frozen=True, slots=True)
class Checked:
    """See `Checker.finish`."""

    batch: str
    plane: str
    state: str
    """`open`, `closed` or `inconclusive`."""
    entries: int
    """Lines between the first and the last."""
    intended: int
    scored: Mapping[str, str]
    """Run → bin."""
    holes: Mapping[str, int]
    """Reason → runs."""
    checks: tuple[Check, ...]
    leases: Leases
    preempted: tuple[Preempted, ...]
    """In the order in which they were superseded."""
    redeliveries: int
    """Messages that were claimed once more, by whomever: of runs, of scores and of tools."""
    ended_ms: Mapping[str, int]
    """Run → when it ended, in ms of the server's time."""
    effects: Effects
    tokens: Tokens

    @property
    def ok(self) -> bool:
        """Nothing was broken."""
        return not self.broken

    @property
    def broken(self) -> tuple[Check, ...]:
        """The properties that were."""
        return tuple(one for one in self.checks if one.violations)

    @property
    def preemptions(self) -> int:
        """How many leases were lost so."""
        return len(self.preempted)
