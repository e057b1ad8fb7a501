"""Delta debugging over lists of faults, without playing any."""

from __future__ import annotations

from collections.abc import Sequence

from workers.simulating.faults import Fault
from workers.simulating.shrinking import minimal

FAULTS = [Fault(f"worker-{number}", "claim", 1, "lost") for number in range(10)]


def test_what_does_not_matter_is_left_out() -> None:
    """Two far apart are needed together."""

    def breaks(some: Sequence[Fault]) -> bool:
        return FAULTS[1] in some and FAULTS[8] in some

    assert minimal(list(FAULTS), breaks) == [FAULTS[1], FAULTS[8]]


def test_where_nothing_matters_nothing_is_left() -> None:
    """It breaks by itself."""
    assert minimal(list(FAULTS), lambda _: True) == []


def test_where_all_matter_all_are_left() -> None:
    """Each is tried, and each is missed."""
    assert minimal(list(FAULTS), lambda some: len(some) == len(FAULTS)) == FAULTS


def test_it_stops_when_it_has_asked_often_enough() -> None:
    """What is left then still breaks, though it may not be the shortest."""
    asked = []

    def breaks(some: Sequence[Fault]) -> bool:
        asked.append(len(some))
        return FAULTS[9] in some

    left = minimal(list(FAULTS), breaks, most=3)
    assert len(asked) == 3
    assert FAULTS[9] in left
