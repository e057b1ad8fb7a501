"""What all workers together may ask of an endpoint: never more than the bucket, however many ask at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise

import pytest

from bus.endpoint_limits import EndpointLimits, EndpointRates
from bus.keys import endpoint
from bus.link import Link
from bus.scripts import Script, all_scripts
from bus.target import Target
from bus.types import Plane
from bus.wire import Wire
from tests.batches import FixedDoor, calls_of
from tests.waiting import PATIENCE, soon
from workers.runtime import SystemRuntime

KEY = endpoint(Plane.LIVE, "models.example/v1#m")
SLOW = 0.06
"""Requests a minute: one in a thousand seconds. Whatever a test takes, nothing refills while it runs."""


@asynccontextmanager
async def limits_of(server: Target, rates: EndpointRates, key: str = KEY) -> AsyncIterator[EndpointLimits]:
    """One worker's view of an endpoint, over a connection of its own."""
    link = Link(FixedDoor(server.address()), SystemRuntime())
    try:
        yield EndpointLimits(link, key, rates)
    finally:
        link.close()


async def fleet(stack: AsyncExitStack, server: Target, rates: EndpointRates, workers: int) -> list[EndpointLimits]:
    """Workers that share nothing but the server."""
    return [await stack.enter_async_context(limits_of(server, rates)) for _ in range(workers)]


async def leave(limits: EndpointLimits, tokens: int = 1) -> None:
    """Wait for the licence of one request, as a worker does."""
    while wait := await limits.take(tokens):
        await asyncio.sleep(wait)


async def test_many_takers_at_once_get_what_the_bucket_holds_and_no_more(any_server: Target) -> None:
    """Ten workers, two hundred takes, all at once: a read and a write that were two commands would grant more."""
    rates = EndpointRates(requests_per_minute=0.6, burst=7 * 100)
    async with AsyncExitStack() as stack:
        workers = await fleet(stack, any_server, rates, 10)
        waits = await soon(asyncio.gather(*(worker.take(1) for _ in range(20) for worker in workers)))
        assert waits.count(0.0) == 7
        assert all(wait > 90 for wait in waits if wait)


async def test_the_bucket_of_tokens_is_not_passed_by_many_small_takes(server: Target) -> None:
    """A thousand tokens are there; takes of 30 at once get 33 licences."""
    async with AsyncExitStack() as stack:
        workers = await fleet(stack, server, EndpointRates(tokens_per_minute=100, burst=600), 5)
        waits = await soon(asyncio.gather(*(worker.take(30) for _ in range(30) for worker in workers)))
        assert waits.count(0.0) == 33


async def test_a_take_that_one_bucket_refuses_takes_nothing_from_the_other(server: Target) -> None:
    """Else a request that waits for tokens would eat the others' requests each time it asks."""
    async with limits_of(server, EndpointRates(requests_per_minute=6, tokens_per_minute=60, burst=20)) as limits:
        assert await limits.take(20) == 0  # one of two requests, all of the tokens
        assert await limits.take(20) > 0
        assert await limits.take(20) > 0
        assert await limits.take(0) == 0  # the second request is still there
        assert await limits.take(0) > 0


async def test_a_request_larger_than_the_bucket_leaves_when_it_is_full_and_is_paid_for_after(server: Target) -> None:
    """It would wait for ever otherwise: no bucket ever holds more than it holds."""
    async with limits_of(server, EndpointRates(tokens_per_minute=600, burst=1)) as limits:
        assert await limits.take(6_000) == 0
        wait = await limits.take(1)
        assert 550 < wait <= 600


async def test_a_licence_is_there_when_the_wait_is_over(server: Target) -> None:
    """600 a minute, one at once: the second one waits a tenth of a second, and need not wait again."""
    async with limits_of(server, EndpointRates(requests_per_minute=600, burst=0)) as limits:
        loop = asyncio.get_running_loop()
        start = loop.time()
        assert await limits.take(1) == 0
        await soon(leave(limits))
        await soon(leave(limits))
        assert 0.19 < loop.time() - start < 5


async def test_a_fleet_that_waits_its_turns_leaves_at_the_rate(server: Target) -> None:
    """Twenty workers over one bucket: in the time that they took, no more left than the bucket and its refill."""
    async with AsyncExitStack() as stack:
        workers = await fleet(stack, server, EndpointRates(requests_per_minute=3_000, burst=0.1), 20)
        loop = asyncio.get_running_loop()
        start = loop.time()
        left: list[float] = []

        async def twice(worker: EndpointLimits) -> None:
            for _ in range(2):
                await leave(worker)
                left.append(loop.time() - start)

        await soon(asyncio.gather(*map(twice, workers)))
        # The 5 of the bucket, and one each 20 ms: what left by a time is never more than that.
        assert all(at >= (nth - 5) * 0.02 - 0.001 for nth, at in enumerate(left, start=1))


async def test_those_who_wait_are_not_all_told_the_same_time(server: Target) -> None:
    """A hundred that come back at once come in vain, all but one."""
    async with limits_of(server, EndpointRates(requests_per_minute=600, burst=0)) as limits:
        assert await limits.take(1) == 0
        loop, turns = asyncio.get_running_loop(), []
        for _ in range(10):
            asked = loop.time()
            wait = await limits.take(1)
            turns.append((asked + wait, loop.time() + wait))  # between the two: asking may take longer than a turn
        assert all(later - earlier > 0.05 for (earlier, _), (_, later) in pairwise(turns))
        assert max([await limits.take(1) for _ in range(50)]) < 2.3  # and none is sent away for long


async def test_a_pause_holds_the_whole_fleet(any_server: Target) -> None:
    """The 429 reached one worker; another one's request must not leave either, also where no rate is set."""
    async with AsyncExitStack() as stack:
        told, other = await fleet(stack, any_server, EndpointRates(), 2)
        assert await other.take(1_000) == 0
        await told.backoff(30)
        assert 25 < await other.take(1) <= 30
        await told.backoff(1)  # a shorter one does not end it
        assert await other.take(1) > 25


async def test_one_call_licenses_all_who_ask_at_once_where_nothing_is_counted(server: Target) -> None:
    """A worker's runs come in crowds; a call of a script each would be a tenth of what a run costs the server."""
    async with limits_of(server, EndpointRates()) as limits:
        assert await limits.take(1) == 0
        before = await _calls(server)
        assert await soon(asyncio.gather(*(limits.take(1) for _ in range(50)))) == [0.0] * 50
        assert await _calls(server) - before == 1


async def test_of_those_who_asked_together_each_waits_for_a_turn_of_its_own(server: Target) -> None:
    """One answer for all would send them all back at the same moment."""
    async with limits_of(server, EndpointRates()) as limits:
        await limits.backoff(30)
        loop = asyncio.get_running_loop()
        start = loop.time()

        async def turn() -> tuple[float, float]:
            wait = await limits.take(1)
            return start + wait, loop.time() + wait  # between the two: asking may take longer than a turn

        turns = await soon(asyncio.gather(*(turn() for _ in range(10))))
        assert max(latest for _, latest in turns) - min(earliest for earliest, _ in turns) > 0.4


async def test_who_gives_up_asking_takes_no_licence_from_the_others(server: Target) -> None:
    """The one that asked first is cancelled; the call was for all."""
    async with limits_of(server, EndpointRates()) as limits:
        first = asyncio.create_task(limits.take(1))
        others = [asyncio.create_task(limits.take(1)) for _ in range(3)]
        await asyncio.sleep(0)
        first.cancel()
        assert await soon(asyncio.gather(*others)) == [0.0] * 3
        assert first.cancelled()


async def _calls(server: Target) -> int:
    """Calls of scripts that the server has taken."""
    wire = await Wire.open(server.address())
    try:
        return (await calls_of(wire))["evalsha"]
    finally:
        wire.close()


async def test_a_pause_ends(server: Target) -> None:
    """By itself, on the server's clock, and not before its time."""
    async with limits_of(server, EndpointRates()) as limits:
        loop = asyncio.get_running_loop()
        start = loop.time()
        await limits.backoff(0.2)
        await soon(leave(limits))
        assert loop.time() - start >= 0.2


async def test_no_answer_of_an_endpoint_stops_a_fleet_for_more_than_an_hour(server: Target) -> None:
    """A Retry-After may say anything."""
    async with limits_of(server, EndpointRates()) as limits:
        await limits.backoff(1e18)
        assert 3590 < await limits.take(1) <= 3602
    async with limits_of(server, EndpointRates(), f"{KEY}2") as limits:
        await limits.backoff(-5)
        assert await limits.take(1) == 0


async def test_retries_are_spent_together_and_run_out(any_server: Target) -> None:
    """Three in a day for ten workers that all failed at once: three try again."""
    async with AsyncExitStack() as stack:
        workers = await fleet(stack, any_server, EndpointRates(retries=3, window=86_400), 10)
        granted = await soon(asyncio.gather(*(worker.retry() for _ in range(5) for worker in workers)))
        assert granted.count(True) == 3
        assert not await workers[0].retry()


async def test_no_retries_means_none_at_all(server: Target) -> None:
    """Not one, and not a division by zero."""
    async with limits_of(server, EndpointRates(retries=0)) as limits:
        assert not await limits.retry()


async def test_a_spent_retry_comes_back(server: Target) -> None:
    """One refills in a `retries`-th of the window."""
    async with limits_of(server, EndpointRates(retries=10, window=1)) as limits:
        granted = 0
        async with asyncio.timeout(PATIENCE):
            while granted < 15:
                granted += await limits.retry()


async def test_endpoints_share_nothing(server: Target) -> None:
    """Nor do planes: a shadow run's requests take nothing from a live one's."""
    rates = EndpointRates(requests_per_minute=SLOW)
    for key in (KEY, f"{KEY}2", endpoint(Plane.SHADOW, "models.example/v1#m")):
        async with limits_of(server, rates, key) as limits:
            assert await limits.take(1) == 0
            assert await limits.take(1) > 0


async def test_a_clock_that_is_set_back_does_not_stop_the_fleet(server: Target) -> None:
    """The times were written by a clock one hour ahead: they go back with it, and what was taken stays taken."""
    wire = await Wire.open(server.address())
    async with limits_of(server, EndpointRates(requests_per_minute=60, burst=0)) as limits:
        assert await limits.take(1) == 0
        hour = 3_600_000_000
        for name in ("at", "requests"):
            await wire.call("HINCRBY", KEY, name, hour)
        assert 0 < await limits.take(1) <= 1
    wire.close()


@pytest.mark.parametrize("one", all_scripts("endpoint"), ids=lambda one: one.name)
async def test_a_number_that_is_none_is_refused_and_changes_nothing(any_server: Target, one: Script) -> None:
    """A script that raised behind its first write would leave half of it."""
    wire = await Wire.open(any_server.address())
    await wire.call("SCRIPT", "LOAD", one.text)
    for wrong in ("", "x", "-1", "1.5", "nan", "inf", str(2**53)):
        for place in range(len(one.argv)):
            argv = ["1"] * len(one.argv)
            argv[place] = wrong
            assert (await wire.call("EVALSHA", one.sha, 1, KEY, *argv))[:2] == [b"reject", b"schema"], wrong
    assert await wire.call("EXISTS", KEY) == 0
    wire.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"requests_per_minute": 0},
        {"tokens_per_minute": -1},
        {"requests_per_minute": float("inf")},
        {"requests_per_minute": float("nan")},
        {"burst": -1},
        {"retries": -1},
        {"window": 0},
    ],
)
def test_a_rate_that_is_none_is_refused(wrong: dict[str, float]) -> None:
    """Before the batch, and not by a division in the middle of it."""
    with pytest.raises(ValueError, match=r"must (be above 0|not be negative)"):
        EndpointRates(**wrong)  # type: ignore[arg-type]
