"""The interval and the bounds: known values, and what must hold for every count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from workers.results.numbers import Interval, bounds, wilson


@st.composite
def counts(draw: st.DrawFn) -> tuple[int, int, int]:
    """Passed, accepted, intended, as any batch may have them; at least one run was scored."""
    intended = draw(st.integers(1, 100_000))
    accepted = draw(st.integers(1, intended))
    return draw(st.integers(0, accepted)), accepted, intended


@given(counts(), st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_the_interval_is_that_of_scipy(case: tuple[int, int, int], level: float) -> None:
    """For every count and level: an implementation by others, that the code itself does not wait for."""
    passed, accepted, _ = case
    found, expected = wilson(passed, accepted, level), binomtest(passed, accepted).proportion_ci(level, method="wilson")
    assert found.low == pytest.approx(expected.low, abs=1e-9)
    assert found.high == pytest.approx(expected.high, abs=1e-9)


@given(counts())
def test_the_interval_holds_the_rate_and_stays_between_nought_and_one(case: tuple[int, int, int]) -> None:
    """The textbook's normal interval leaves [0, 1] near its ends, and says that 5 of 5 is certain."""
    passed, accepted, _ = case
    interval = wilson(passed, accepted)
    assert 0 <= interval.low <= passed / accepted <= interval.high <= 1
    assert interval.low < interval.high


def test_five_of_five_is_not_certainty() -> None:
    """All of a few passed: the interval says how little that is."""
    assert wilson(5, 5).low == pytest.approx(0.5655, abs=1e-4)
    assert wilson(0, 5).high == pytest.approx(0.4345, abs=1e-4)


def test_more_confidence_is_a_wider_interval() -> None:
    """The level is an argument, and it is used."""
    usual, sure = wilson(30, 40), wilson(30, 40, confidence=0.99)
    assert sure.low < usual.low < usual.high < sure.high


def test_nothing_scored_is_nothing_known() -> None:
    """No division by nought: every rate is possible."""
    assert wilson(0, 0) == Interval(0.0, 1.0)
    assert bounds(0, 0, 7) == Interval(0.0, 1.0)
    assert bounds(0, 0, 0) == Interval(0.0, 1.0)


@given(counts())
def test_the_bounds_hold_the_rate_that_the_full_set_would_have_had(case: tuple[int, int, int]) -> None:
    """However the holes would have ended, the rate of all runs lies between the bounds, ends included."""
    passed, accepted, intended = case
    limits = bounds(passed, accepted, intended)
    holes = intended - accepted
    for more in {0, holes // 2, holes}:
        assert limits.low <= (passed + more) / intended <= limits.high
    assert limits.low <= passed / accepted <= limits.high or holes == 0


def test_without_holes_the_bounds_are_the_rate() -> None:
    """Nothing is missing, so there is nothing to bound."""
    assert bounds(3, 4, 4) == Interval(0.75, 0.75)
    assert bounds(8, 8, 10) == Interval(0.8, 1.0)


@pytest.mark.parametrize(("passed", "accepted", "intended"), [(-1, 4, 4), (5, 4, 4), (2, 4, 3)])
def test_counts_that_cannot_be_are_refused(passed: int, accepted: int, intended: int) -> None:
    """More passed than were scored, or more scored than were meant to be: somebody counted twice."""
    if not 0 <= passed <= accepted:
        with pytest.raises(ValueError, match="not possible"):
            wilson(passed, accepted)
    with pytest.raises(ValueError, match="not possible"):
        bounds(passed, accepted, intended)
