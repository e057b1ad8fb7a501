"""Who may be in a process together: what may kill it, whom it takes along, and who waits for whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from bus.types import BatchId, RunId
from tests.waiting import soon, until
from workers.quarantine import Owner, Place, Quarantine


def owner(run: str) -> Owner:
    """A run of the only batch."""
    return Owner(BatchId("b"), RunId(run))


class Room:
    """A quarantine, and tasks that want to be in it."""

    def __init__(self) -> None:
        self.quarantine = Quarantine()
        self.open = AsyncExitStack()

    async def run(self, run: str, *, suspect: bool = False) -> Place:
        """A run that comes in at once."""
        return await soon(self.open.enter_async_context(self.quarantine.enter(owner(run), suspect=suspect)))

    @asynccontextmanager
    async def coming(self, run: str, *, suspect: bool = False, is_tool: bool = False) -> AsyncIterator[asyncio.Event]:
        """One that wants to come in; the event is set when it is."""
        came = asyncio.Event()

        async def come() -> None:
            async with self.quarantine.enter(owner(run), suspect=suspect, is_tool=is_tool):
                came.set()

        task = asyncio.create_task(come())
        await turns()
        yield came
        await soon(task)


async def turns() -> None:
    """Let every task that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    """Nobody is in."""
    one = Room()
    async with one.open:
        yield one


async def test_a_suspect_call_waits_until_no_run_is_driven_beside_it(room: Room) -> None:
    """It may be what its last executor died of, and this process holds runs that have nothing to do with it."""
    place = room.quarantine.enter(owner("innocent"), suspect=False)
    await place.__aenter__()
    async with room.coming("other", suspect=True, is_tool=True) as came:
        assert not came.is_set()
        await place.__aexit__(None, None, None)
        await soon(came.wait())


@pytest.mark.parametrize("is_suspect", [False, True])
async def test_a_run_that_waits_for_its_own_call_does_not_keep_it_out(room: Room, is_suspect: bool) -> None:
    """Each would wait for the other; also when the run is a suspect itself, and alone."""
    run = await room.run("a", suspect=is_suspect)
    async with run.aside():
        async with room.coming("a", is_tool=True) as came:
            await soon(came.wait())
        async with room.coming("a", suspect=True, is_tool=True) as came:
            await soon(came.wait())


async def test_a_run_that_stands_aside_keeps_others_suspects_out_and_is_asked_to_make_way(room: Room) -> None:
    """It has been claimed, and would be counted as dead with the suspect; its own call's suspicion is its own."""
    run = await room.run("a")
    async with AsyncExitStack() as waiting:
        async with run.aside():
            assert not room.quarantine.is_in_the_way(run)
            came = await waiting.enter_async_context(room.coming("other", suspect=True, is_tool=True))
            assert not came.is_set()
            assert room.quarantine.is_in_the_way(run)
        await turns()
        assert not came.is_set()
        await room.open.aclose()
        await soon(came.wait())


async def test_who_stood_aside_does_not_go_on_beside_a_suspect(room: Room) -> None:
    """Its call has ended, but who made it has not left yet: what it does next may be the end of the process."""
    run, went_on = await room.run("a"), asyncio.Event()
    begun = asyncio.Event()

    async def wait() -> None:
        async with run.aside():
            await begun.wait()
        went_on.set()

    waits = asyncio.create_task(wait())
    await turns()
    async with room.quarantine.enter(owner("a"), suspect=True, is_tool=True):
        begun.set()
        await turns()
        assert not went_on.is_set()
    await soon(waits)
    assert went_on.is_set()


async def test_a_suspect_run_goes_on_alone(room: Room) -> None:
    """Calls for other runs came in while it waited; new ones wait from the moment on that it wants to go on."""
    run = await room.run("a", suspect=True)
    other = room.quarantine.enter(owner("other"), suspect=False, is_tool=True)
    aside = run.aside()
    await aside.__aenter__()
    await soon(other.__aenter__())
    goes_on = asyncio.create_task(aside.__aexit__(None, None, None))
    await turns()
    assert not goes_on.done()
    async with AsyncExitStack() as waiting:
        later = await waiting.enter_async_context(room.coming("later", is_tool=True))
        await other.__aexit__(None, None, None)
        await soon(goes_on)
        await turns()
        assert not later.is_set()
        await room.open.aclose()
        await soon(later.wait())


async def test_a_suspect_that_gives_up_waiting_keeps_nobody_out(room: Room) -> None:
    """Its lease was lost meanwhile: the runs that had waited behind it were not told."""
    place = await room.run("a")

    async def suspect() -> None:
        async with room.quarantine.enter(owner("s"), suspect=True):
            raise AssertionError("the run is still in")

    waits = asyncio.create_task(suspect())
    await until(lambda: room.quarantine.is_in_the_way(place), "the suspect to wait")
    async with room.coming("b") as came:
        assert not came.is_set()
        waits.cancel()
        await soon(came.wait())


async def test_no_call_is_read_that_would_wait_for_a_suspect(room: Room) -> None:
    """Another process may make it. But a run that stands aside may be waiting for just that one."""

    def closed() -> bool:
        return room.quarantine.is_closed

    assert not closed()
    run = await room.run("a")
    async with AsyncExitStack() as waiting:
        await waiting.enter_async_context(room.coming("s", suspect=True))
        assert closed()
        async with run.aside():
            assert not closed()
        await room.open.aclose()


async def test_who_is_outside_for_a_while_keeps_no_suspect_out(room: Room) -> None:
    """A call that waits for a slot, which may be long, is no danger and in none."""
    async with (
        room.quarantine.enter(owner("a"), suspect=False, is_tool=True) as place,
        place.outside(),
        room.coming("s", suspect=True) as came,
    ):
        await soon(came.wait())
