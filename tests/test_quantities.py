"""Durations, sizes and shares: what is understood, and that nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.quantities import duration, share_of, size


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("500ms", 0.5),
        ("10s", 10.0),
        ("2m", 120.0),
        ("1.5h", 5400.0),
        ("1d", 86400.0),
        (" 3 s ", 3.0),
        (7, 7.0),
        (0.25, 0.25),
    ],
)
def test_durations_are_seconds(written: object, seconds: float) -> None:
    """With a unit, or a bare number of seconds."""
    assert duration(written) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "10",
        "s",
        "-1s",
        "0s",
        "1e3s",
        "10 sec",
        "1:30",
        "٣s",
        True,
        None,
        0,
        -1,
        float("nan"),
        float("inf"),
        10**400,
    ],
)
def test_what_is_no_duration_is_refused(written: object) -> None:
    """`True` is no second, and text without a unit says nothing."""
    with pytest.raises(ValueError, match=r'is not a duration \(write it as "500ms", "10s", "2m" or "1h"\)$'):
        duration(written)


@pytest.mark.parametrize(
    ("written", "count"),
    [("1GB", 10**9), ("1GiB", 2**30), ("1.5MB", 1_500_000), ("500kB", 500_000), ("12 B", 12), (4096, 4096)],
)
def test_sizes_are_bytes(written: object, count: int) -> None:
    """Powers of ten and of two are told apart by their names."""
    assert size(written) == count


@pytest.mark.parametrize("written", ["1G", "10mb", "0B", "0.1B", "-1MB", "1e9", False, 0, None, "99999999999TB"])
def test_what_is_no_size_is_refused(written: object) -> None:
    """`10mb` might be millibits: the spelling is strict."""
    with pytest.raises(ValueError, match="is not a size"):
        size(written)


def test_a_share_is_rounded_up_and_is_at_least_one() -> None:
    """A quorum of half of three runs is two; floats would make eight of 7% of a hundred."""
    assert [share_of("50%", 3), share_of("7%", 100), share_of("0%", 10), share_of("100%", 10)] == [2, 7, 1, 10]
    assert share_of("33.5 %", 200) == 67


@given(percent=st.integers(0, 100), whole=st.integers(1, 10**6))
def test_a_share_is_the_smallest_count_that_reaches_it(percent: int, whole: int) -> None:
    """One run fewer would be below the share."""
    count = share_of(f"{percent}%", whole)
    assert count * 100 >= percent * whole
    assert count == 1 or (count - 1) * 100 < percent * whole


@pytest.mark.parametrize("written", ["", "50", "101%", "-1%", "half", "5e1%"])
def test_what_is_no_share_is_refused(written: str) -> None:
    """Above all of the runs there is nothing to wait for."""
    with pytest.raises(ValueError, match="is not a share"):
        share_of(written, 10)
