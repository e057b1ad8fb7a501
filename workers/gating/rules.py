"""What a gate may ask of a closed batch: the rules of a suite's `[gate]` and of the command line, read and spelt.

A rule that was misspelt, or that cannot be met or missed by anything, would pass or fail every batch for ever. So each
is checked where it is read, and the message names it as its writer did.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from bus.errors import InputError
from bus.nearest import nearest

__all__ = ["GateRules"]

_SHOWN = 80  # characters of a value that is none


@dataclass(frozen=True, slots=True)
class GateRules:
    """What is asked of a closed batch; None where nothing is."""

    min_pass_rate: float | None = None
    """At least this share of the scored runs must pass, in [0, 1]."""
    max_holes: int | None = None
    """At most so many runs may have ended without a score."""
    max_cost: float | None = None
    """At most so much may have been spent, in the currency of `price`."""
    price: float | None = None
    """What a million tokens cost: prompts and answers together, as the ledger counts them."""
    no_worse_than: str | None = None
    """The baseline: of a suite, a snapshot file in its directory; on the command line also a batch or a history."""
    margin: float | None = None
    """The pass rate may be below the baseline's by so much, in [0, 1]; 0 when left out."""
    confidence: float | None = None
    """None: the difference itself is compared. Else its lower bound at this confidence, in (0.5, 1)."""
    must_pass: tuple[str, ...] = ()
    """Cases of which every run must pass."""

    @classmethod
    def from_mapping(cls, rules: Mapping[str, Any]) -> GateRules:
        """Read the fields of a suite's `[gate]`. Raises `InputError` that names the field."""
        known = [field.name for field in fields(cls)]
        for name in rules:
            if name not in known:
                near = nearest(name, known)
                remedy = f"did you mean {near}?" if near else f"known: {', '.join(known)}"
                raise InputError(f"gate.{name} is not a rule", remedy=remedy)
        for name, (is_good, wanted) in _KINDS.items():
            value = rules.get(name)
            if value is not None and not is_good(value):
                raise InputError(f"gate.{name} is {str(value)[:_SHOWN]}", remedy=wanted)
        if rules.get("max_cost") is not None and rules.get("price") is None:
            raise InputError("gate.max_cost needs a price", remedy="price: what a million tokens cost")
        for name in ("margin", "confidence"):
            if rules.get(name) is not None and rules.get("no_worse_than") is None:
                raise InputError(f"gate.{name} is about a baseline, and none is named", remedy="no_worse_than")
        rate, holes = rules.get("min_pass_rate"), rules.get("max_holes")
        return cls(
            min_pass_rate=None if rate is None else float(rate),
            max_holes=None if holes is None else int(holes),
            max_cost=rules.get("max_cost"),
            price=rules.get("price"),
            no_worse_than=rules.get("no_worse_than"),
            margin=rules.get("margin"),
            confidence=rules.get("confidence"),
            must_pass=tuple(rules.get("must_pass") or ()),
        )

    def __bool__(self) -> bool:
        """Whether anything is asked; a price alone asks nothing."""
        return bool(str(self))

    def __str__(self) -> str:
        """`pass_rate >= 0.6 and holes <= 0`; empty when nothing is asked."""
        asked = []
        if self.min_pass_rate is not None:
            asked.append(f"pass_rate >= {self.min_pass_rate}")
        if self.max_holes is not None:
            asked.append(f"holes <= {self.max_holes}")
        if self.max_cost is not None:
            asked.append(f"cost <= {self.max_cost:g}")
        if self.no_worse_than is not None:
            asked.append(f"difference {self.least_difference}")
        if self.must_pass:
            asked.append(f"must_pass {_many(len(self.must_pass), 'case')}")
        return " and ".join(asked)

    @property
    def least_difference(self) -> str:
        """What is asked of the difference to the baseline, as text: `>= -0.02`."""
        least = f">= {0 - (self.margin or 0):g}"
        return least if self.confidence is None else f"{least} at confidence {self.confidence:g}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _is_number(value: Any) -> bool:  # noqa: ANN401 - here and below: whatever a file held
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_share(value: Any) -> bool:  # noqa: ANN401
    return _is_number(value) and 0 <= value <= 1


def _is_amount(value: Any) -> bool:  # noqa: ANN401
    return _is_number(value) and 0 <= value < math.inf


def _is_count(value: Any) -> bool:  # noqa: ANN401
    return _is_amount(value) and not value % 1


def _is_confidence(value: Any) -> bool:  # noqa: ANN401
    return _is_number(value) and 0.5 < value < 1  # noqa: PLR2004 - below a half it is no lower bound


def _is_name(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, str) and value != ""


def _are_names(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, list | tuple) and all(map(_is_name, value))


_KINDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "min_pass_rate": (_is_share, "a number from 0 to 1"),
    "max_holes": (_is_count, "a whole number, 0 or more"),
    "max_cost": (_is_amount, "a number, 0 or more"),
    "price": (_is_amount, "a number, 0 or more"),
    "no_worse_than": (_is_name, "the name of a baseline"),
    "margin": (_is_share, "a number from 0 to 1"),
    "confidence": (_is_confidence, "a number between 0.5 and 1, such as 0.95"),
    "must_pass": (_are_names, "a list of case ids"),
}
