"""What all batches came to, in figures."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bus.checker import Checked, Effects, Leases, Preempted, Tokens
from bus.keys import BatchKeys
from bus.types import BatchId, Plane
from bus.wire import Reply
from tests.gated import spec
from workers.chaos.batch import Ended
from workers.chaos.deaths import Deaths, recoveries
from workers.chaos.examining import Examined
from workers.chaos.faults import Fault
from workers.chaos.report import in_a_line, percentile

_LOST = Preempted("a#1", "l1", "worker-1", False, granted_ms=1_000, heard_ms=1_500, superseded_ms=5_000, by="worker-2")
_FOUND = Checked(
    batch="b", plane="live", state="closed", entries=9, intended=1, scored={"a#1": "pass"}, holes={}, checks=(),
    leases=Leases(2, 1, 0, 0), preempted=(_LOST,), redeliveries=1, ended_ms={"a#1": 9_000}, effects=Effects(0, None),
    tokens=Tokens(0, 0, 0, None),
)  # fmt: skip


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, None), ([7], 0.99, 7), ([1, 2, 3, 4], 0.5, 2), (list(range(1, 101)), 0.99, 99), ([5, 1, 3], 0.5, 3)],
)
def test_a_percentile_is_a_value_that_was_measured(values: list[int], share: float, expected: int | None) -> None:
    """The smallest one that so large a share does not exceed."""
    assert percentile(values, share) == expected


class Server:
    """A server that is asked who has what, and the time."""

    def __init__(self) -> None:
        self.now_ms = 2_000
        self.given: list[list[object]] = [[b"1-0", b"worker-1", 0, 1]]
        self.looked = asyncio.Event()

    async def ask(self, *command: str | bytes | int) -> Reply:
        """Of the runs' stream; the scores' is empty."""
        if command[0] == "TIME":
            return [self.now_ms // 1_000, self.now_ms % 1_000 * 1_000]
        self.looked.set()
        return self.given if str(command[1]).endswith(":runs") else []


async def after(kill_ms: int, *, consumer: str = "worker-1") -> Sequence[object]:
    """The recoveries of one kill, whose message is given to somebody else at 4,000."""
    server = Server()
    server.now_ms = kill_ms
    deaths = Deaths(server.ask, BatchKeys(Plane.LIVE, BatchId("b")))
    await deaths.told(consumer, lambda: None)
    server.looked.clear()
    await server.looked.wait()
    server.now_ms, server.given = 4_000, [[b"1-0", b"worker-2", 0, 2]]
    while any(death.redelivered_ms is None for death in deaths.deaths):
        await asyncio.sleep(0)
    await deaths.close()
    return [
        (one.redelivered, one.leased, one.ended, one.lost)
        for one in recoveries(deaths, replace(_FOUND, preempted=(_LOST,)))
    ]


def test_one_of_a_kind_is_said_as_one() -> None:
    """`1 preemption`: whoever reads a line for each batch reads it often."""
    deaths = Deaths(Server().ask, BatchKeys(Plane.LIVE, BatchId("b")))
    ended = Ended(BatchId("b"), spec(1), 12.4, None, "", {next(iter(Fault)): 1}, deaths)
    found = Examined(ended, Path("h.jsonl"), _FOUND, (), (), compared=False)
    assert in_a_line(found, "sure") == "b (sure): closed after 12 s, 1 fault, 1 preemption, 0 properties broken"


async def test_a_kill_is_followed_to_the_redelivery_the_next_lease_and_the_end() -> None:
    """All in ms behind it, by the server's clock; and how long the lease had been held."""
    assert await after(2_000) == [(2_000, 3_000, 7_000, 1_000)]


async def test_a_kill_of_somebody_else_or_at_another_time_recovers_nothing() -> None:
    """A lease that was lost before, or by another, was not lost by this."""
    assert await after(2_000, consumer="worker-3") == []
    assert await after(500) == []
