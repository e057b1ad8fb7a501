"""What all batches came to: a screen, and the JSON of the design."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workers.chaos.examining import Examined
from workers.explaining.telling import many

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Report", "in_a_line", "percentile"]


def in_a_line(found: Examined, world: str) -> str:
    """One batch, while others are still to come: `world` is where it ran."""
    ended, broken = found.ended, len(found.broken)
    figures = (
        many(sum(ended.faults.values()), "fault"),
        many(found.checked.preemptions, "preemption"),
        f"{broken:,} {'property' if broken == 1 else 'properties'} broken",
    )
    return f"{ended.name} ({world}): {found.checked.state} after {ended.seconds:.0f} s, {', '.join(figures)}"


def percentile(values: Sequence[int], share: float) -> int | None:
    """The smallest value that so large a share of all does not exceed; None of none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1)]


@dataclass(slots=True)
class _Sum:
    """One property, over all batches."""

    examined: int = 0
    violations: int = 0


@dataclass(slots=True)
class Report:
    """See the module's text."""

    seed: int
    lease_ms: int
    examined: list[Examined] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Nothing was broken."""
        return not any(one.broken for one in self.examined)

    @property
    def stuck(self) -> int:
        """Batches that did not end."""
        return sum(bool(one.ended.stuck) for one in self.examined)

    def _sums(self) -> dict[str, _Sum]:
        sums: dict[str, _Sum] = {}
        for one in self.examined:
            for check in one.checks:
                found = sums.setdefault(check.property, _Sum())
                found.examined += check.examined
                found.violations += check.violations
        return sums

    def _faults(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for one in self.examined:
            total.update({fault.value: count for fault, count in one.ended.faults.items()})
        return dict(sorted(total.items()))

    def _times(self, name: str) -> list[int]:
        found = [getattr(recovery, name) for one in self.examined for recovery in one.recoveries]
        return [value for value in found if value is not None]

    def as_json(self) -> dict[str, Any]:
        """The object of `--json`.

        Effects and tokens are those of the batches whose books could be compared; where none could, of all, and the
        other side is null.
        """
        compared = [one.checked for one in self.examined if one.compared]
        all_ = [one.checked for one in self.examined]
        external = [found.effects.external for found in compared if found.effects.external is not None]
        billed = [found.tokens.lab for found in compared if found.tokens.lab is not None]
        leased = self._times("leased")
        return {
            "seed": self.seed,
            "faults": self._faults(),
            "preemptions": sum(found.preemptions for found in all_),
            "batches": len(self.examined),
            "stuck": self.stuck,
            "checks": [
                {"property": name, "examined": found.examined, "violations": found.violations}
                for name, found in self._sums().items()
            ],
            "effects": {
                "committed": sum(found.effects.committed for found in (compared if external else all_)),
                "external": sum(external) if external else None,
            },
            "tokens": {
                "lab": sum(billed) if billed else None,
                "ledger": sum(found.tokens.ledger for found in (compared if billed else all_)),
            },
            "recovery_ms": {"p50": percentile(leased, 0.5), "p99": percentile(leased, 0.99)},
            "lease_ms": self.lease_ms,
        }

    def show(self, console: Console) -> None:
        """One screen."""
        found = self.as_json()
        sums = self._sums().values()
        broken = {name: one for name, one in self._sums().items() if one.violations}
        rows = [
            ("batches", f"{found['batches']}, {found['stuck']} stuck"),
            ("faults", _listed(found["faults"]) or "none struck"),
            ("preemptions", f"{found['preemptions']:,}, counted from the histories"),
            ("settled", self._settled()),
            ("recovery", self._recovery()),
            ("effects", _sides(found["effects"], "committed", "external", "at the endpoint")),
            ("tokens", _sides(found["tokens"], "ledger", "lab", "billed by the endpoint")),
            (
                "checked",
                f"{sum(one.examined for one in sums):,} cases of {sum(bool(one.examined) for one in sums)} "
                f"properties, {len(broken)} broken; {sum(not one.examined for one in sums)} examined nothing",
            ),
        ]
        for label, value in rows:
            console.print(f"{label:<12} {value}", markup=False, soft_wrap=True)

    def _settled(self) -> str:
        times = [round(1000 * one.ended.settled) for one in self.examined if one.ended.settled is not None]
        return f"{self._leases(times)} from the last fault to the close" if times else "no batch outlived its faults"

    def _recovery(self) -> str:
        parts = (("redelivered", "redelivered"), ("leased", "leased"), ("ended", "ended"), ("lost", "of work lost"))
        told = [f"{self._leases(times)} {label}" for name, label in parts if (times := self._times(name))]
        return "; ".join(told) or "nobody was killed who held a lease"

    def _leases(self, times: Sequence[int]) -> str:
        middle, tail = percentile(times, 0.5) or 0, percentile(times, 0.99) or 0
        leases = f"{middle / self.lease_ms:.2f}, {tail / self.lease_ms:.2f} lease times"
        return f"{middle:,} ms p50, {tail:,} ms p99 ({leases})"


def _listed(counts: dict[str, int]) -> str:
    return " · ".join(f"{name} {count}" for name, count in counts.items())


def _sides(pair: dict[str, int | None], own: str, other: str, where: str) -> str:
    there = pair[other]
    return f"{pair[own]:,} {own}, " + ("nobody else counted" if there is None else f"{there:,} {where}")
