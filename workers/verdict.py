"""What ends an attempt of a solver: its own answer, or what ends its run or starts it over from outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from bus.errors import EvalbusError

__all__ = ["Again", "Answered", "Broken", "Over", "Verdict"]


@dataclass(frozen=True, slots=True)
class Answered:
    """The solver has answered, and all that it said is written."""

    text: str


@dataclass(frozen=True, slots=True)
class Over:
    """The run ends as this hole."""

    why: str
    detail: str


@dataclass(frozen=True, slots=True)
class Again:
    """The solver starts over: what it was told is given up."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The bus failed under the solver's hands: that is no failure of the candidate's."""

    error: EvalbusError


Verdict: TypeAlias = Answered | Over | Again | Broken
