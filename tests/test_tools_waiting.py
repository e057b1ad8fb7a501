"""What executors and holders ask of the server while they wait: once for many, and no more than they need to know."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import cast

import pytest

from bus.port import Bus
from bus.types import BatchId, RunId
from workers.tools.slots import Looks, Slot, Slots
from workers.tools.waking import Bell, Wakings

BATCH, RUN = BatchId("b"), RunId("a#1")


class Server:
    """Answers looks at places, of which some are taken."""

    def __init__(self, *taken: str) -> None:
        self.taken, self.asked = set(taken), list[list[str]]()

    async def free_slots(self, batch: BatchId, slots: Sequence[str]) -> list[str]:
        self.asked.append(list(slots))
        await asyncio.sleep(0)
        return [slot for slot in slots if slot not in self.taken]


def looks_at(server: Server) -> Looks:
    """Of a process that has this one."""
    return Looks(cast(Bus, server))


async def choose(slots: Slots, looks: Looks, stack: AsyncExitStack, count: int) -> Slot:
    """As an executor does."""
    slot = await stack.enter_async_context(slots.one("book", count))
    names = slot.few()
    if not slot.choose(names, await looks.free(BATCH, names)):
        assert slot.choose(slot.names, await looks.free(BATCH, slot.names))
    return slot


async def test_calls_that_look_at_the_same_moment_share_a_look_and_take_different_places() -> None:
    """Forty calls of a tool with a thousand places: one command, of few words."""
    server, slots = Server(), Slots(lambda: 0.25)
    looks = looks_at(server)
    async with AsyncExitStack() as stack:
        found = await asyncio.gather(*(choose(slots, looks, stack, 1000) for _ in range(40)))
        assert len({slot.name for slot in found}) == 40
    assert len(server.asked) == 1
    assert len(server.asked[0]) < 100  # of a thousand


@pytest.mark.parametrize("count", [1, 8, 9, 20])
async def test_as_many_calls_as_places_find_one_each(count: int) -> None:
    """The next one waits until a place is left."""
    server, slots = Server(), Slots(lambda: 0.9)
    async with AsyncExitStack() as stack:
        for _ in range(count):
            await choose(slots, looks_at(server), stack, count)
        waits = asyncio.create_task(choose(slots, looks_at(server), stack, count))
        await asyncio.sleep(0)
        assert not waits.done()
        waits.cancel()


async def test_where_the_first_few_are_taken_all_are_looked_at() -> None:
    """Once, and at once: the last free one is found."""
    server, slots = Server(*(f"book.{number}" for number in range(99))), Slots(lambda: 0.0)
    async with AsyncExitStack() as stack:
        slot = await choose(slots, looks_at(server), stack, 100)
        assert slot.name == "book.99"
    assert [len(asked) for asked in server.asked] == [4, 100]


async def test_a_place_that_was_lost_is_not_the_next_one_to_be_looked_at() -> None:
    """Another process begins there."""
    drawn = iter([0.0, 0.5])
    slots = Slots(lambda: next(drawn))
    async with slots.one("book", 100) as slot:
        assert slot.few()[0] == "book.0"
        slot.lose()
        assert slot.few()[0] == "book.50"


async def test_a_look_that_fails_fails_for_all_who_share_it_and_for_nobody_after_them() -> None:
    """The next look is another one."""

    class Broken(Server):
        async def free_slots(self, batch: BatchId, slots: Sequence[str]) -> list[str]:
            if not self.asked:
                self.asked.append(list(slots))
                raise OSError("gone")
            return list(slots)

    looks = looks_at(Broken())
    told = await asyncio.gather(looks.free(BATCH, ["a.0"]), looks.free(BATCH, ["a.1"]), return_exceptions=True)
    assert [type(one) for one in told] == [OSError, OSError]
    assert await looks.free(BATCH, ["a.0"]) == {"a.0"}


async def test_who_is_cancelled_takes_nobody_elses_look_along() -> None:
    """The look goes on."""
    looks = looks_at(Server())
    one, other = (asyncio.create_task(looks.free(BATCH, [f"a.{number}"])) for number in range(2))
    await asyncio.sleep(0)
    one.cancel()
    assert await other == {"a.0", "a.1"}


async def test_a_bell_is_heard_when_it_has_rung_for_all_and_not_before() -> None:
    """One look for a fan-out, not one for each of its intents."""
    bell = Bell()
    bell.ring("0")  # nobody waits yet
    waits = asyncio.create_task(bell.wait({"0", "1", "2"}, 60))
    for intent in ("1", "1", "2"):
        await asyncio.sleep(0)
        assert not waits.done()
        bell.ring(intent)
    await waits
    await bell.wait({"0"}, 0)  # what was heard is not heard again: the clock ends this


async def test_the_first_look_at_what_others_execute_follows_what_it_usually_takes() -> None:
    """Half of it, within bounds."""
    wakings = Wakings()
    assert wakings.first_look() == 0.02
    for _ in range(50):
        wakings.waited(0.2)
    assert wakings.first_look() == pytest.approx(0.1, rel=0.05)
    for _ in range(50):
        wakings.waited(30.0)
    assert wakings.first_look() == 0.2
    with wakings.bell(BATCH, RUN) as bell:
        waits = asyncio.create_task(bell.wait({"0"}, 60))
        await asyncio.sleep(0)
        wakings.ring(BATCH, RUN, "0")
        await waits
