"""What a call that carries several commands must not do to one of them, to its neighbours, or to whoever closes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import cast

import pytest

from bus.calling import Command
from bus.errors import InputError, ReplyError
from bus.link import Link
from bus.port import Group
from bus.scripts import Script, expand, script
from bus.target import Target
from bus.together import Together
from bus.types import Decision, LeaseId, Verb
from tests.batches import W1, Batch, calls_of, opened
from tests.model_calls import LIMITS, answered, asked, check_calls, figures
from tests.tool_calls import INVERSES, Tools

RUNS = 6


@pytest.fixture
async def batch(server: Target) -> AsyncIterator[Batch]:
    """Half a dozen runs, all admitted."""
    async with opened(server.address(), runs=RUNS) as one:
        await one.admit()
        yield one


async def reads_of(batch: Batch) -> int:
    """Fields that scripts have asked the server for one by one, since its start."""
    return (await calls_of(batch.wire))["hget"]


async def test_what_a_command_had_billed_when_it_broke_is_billed_by_its_record_or_not_at_all(server: Target) -> None:
    """A refusal bills its chunks, too. An error must not: it has no record that a replay would bill them by."""
    async with opened(server.address(), runs=2, limits=LIMITS) as batch:
        await batch.admit()
        held = [await batch.claimed(), await batch.claimed()]
        calls = [asked(one.ref) for one in held]
        placed = [(await batch.bus.open_call(one.ref, call)) for one, call in zip(held, calls, strict=True)]
        broken = batch.keys.transcript(held[0].ref.run, 0)
        await batch.wire.call("SET", broken, "no transcript")
        asking = [
            (one.ref, call, place.answer["desk_gen"], answered())
            for one, call, place in zip(held, calls, placed, strict=True)
        ]
        said = await asyncio.gather(*(batch.bus.bind_call(*one) for one in asking), return_exceptions=True)
        assert isinstance(said[0], ReplyError)
        assert isinstance(said[1], Decision)
        assert said[1].applied
        assert (await figures(batch))["spent"] == 30
        await batch.wire.call("DEL", broken)
        assert (await batch.bus.bind_call(*asking[0])).applied
        assert (await figures(batch))["spent"] == 60
        await check_calls(batch)


async def test_one_that_cannot_be_put_into_words_takes_nobody_along(batch: Batch) -> None:
    """A scorer's value is over an envelope's limit: that score is an error before it leaves, the others are signed."""
    for _ in range(3):
        await batch.sealed()
    scorings = [await batch.scoring() for _ in range(3)]
    judgements = [one.judgement for one in scorings]
    judgements[1] = replace(judgements[1], value="v" * 70_000)
    said = await asyncio.gather(
        *(batch.bus.score(one.ref, judgement) for one, judgement in zip(scorings, judgements, strict=True)),
        return_exceptions=True,
    )
    assert isinstance(said[1], InputError)
    assert [isinstance(one, Decision) and one.applied for one in said] == [True, False, True]
    assert (await batch.bus.score(scorings[1].ref, scorings[1].judgement)).applied


async def test_one_alone_that_cannot_be_put_into_words_sends_nothing(batch: Batch) -> None:
    """Then the call has no command at all, and none is made."""
    await batch.sealed()
    scoring = await batch.scoring()
    async with batch.unchanged():
        with pytest.raises(InputError):
            await batch.bus.score(scoring.ref, replace(scoring.judgement, value="v" * 70_000))


class _Interrupted:
    """A link whose first call has no answer."""

    def __init__(self) -> None:
        self.sent: list[list[str]] = []
        self.is_lost, self.goes_on = asyncio.Event(), asyncio.Event()

    async def run_together(
        self, _: Script, __: Sequence[str], commands: Callable[[str], Sequence[Command]]
    ) -> list[Decision]:
        self.sent.append([one.keys[0] for one in commands("first life")])
        self.is_lost.set()
        await self.goes_on.wait()
        made = commands("second life")
        self.sent.append([one.keys[0] for one in made])
        return [Decision(Verb.COMMIT, None, one.keys[0], {}) for one in made]


async def test_who_has_given_up_is_not_sent_again(batch: Batch) -> None:
    """Its command would be applied up to a minute after its caller was told to stop, and asked for something else."""
    del batch
    link = _Interrupted()
    together = Together(cast(Link, link))
    futures = [together.ask(script("run.yield"), ("shared",), (name,), lambda _: ("envelope",)) for name in "abc"]
    await link.is_lost.wait()
    futures[1].cancel()
    link.goes_on.set()
    assert [(await futures[0]).by, (await futures[2]).by] == ["a", "c"]
    assert link.sent == [["a", "b", "c"], ["a", "c"]]


async def test_what_was_asked_for_and_has_not_left_does_not_leave_a_bus_that_was_closed(batch: Batch) -> None:
    """It would open the connection once more, which nobody closes then, and claim a run for somebody who has gone."""
    [entry] = await batch.bus.read(Group.WORKER, W1, [batch.name], 1, 1)
    opened_before = batch.bus.link.opened
    asking = asyncio.create_task(batch.bus.claim(entry, batch.lease(), W1))
    await asyncio.sleep(0)
    await batch.bus.aclose()
    [said] = await asyncio.gather(asking, return_exceptions=True)
    for _ in range(10):
        await asyncio.sleep(0)
    assert isinstance(said, asyncio.CancelledError)
    assert batch.bus.link.opened == opened_before
    assert await batch.state(entry.run) == "queued"


async def test_the_effects_of_one_command_are_not_looked_up_again_for_each_that_follows(server: Target) -> None:
    """Thirty fan-outs of a hundred calls each held all other clients up for three quarters of a second."""
    asked_for = []
    for name in ("alone", "crowd"):
        limits = {"inverses": INVERSES, "ack_bound_ms": 1_000}
        batch = await Batch.open(server.address(), runs=RUNS, name=name, limits=limits)
        await batch.admit()
        tools = [await Tools.open(batch) for _ in range(RUNS)]
        before = await reads_of(batch)
        if name == "alone":
            for one in tools:
                await one.put(10)
        else:
            await asyncio.gather(*(one.put(10) for one in tools))
        asked_for.append(await reads_of(batch) - before)
        await batch.aclose()
    alone, crowd = asked_for
    assert crowd <= alone


async def test_a_lease_that_a_neighbour_was_just_granted_is_known(server: Target) -> None:
    """The map of leases is read beside the row in which the call's earlier commands have entered theirs."""
    answers = []
    for name in ("alone", "crowd"):
        limits = {"inverses": INVERSES, "ack_bound_ms": 1_000}
        batch = await Batch.open(server.address(), runs=2, name=name, limits=limits)
        await batch.admit()
        one, other = await Tools.open(batch), await Tools.open(batch)
        await one.batch.bus.append(one.ref, one.head, 1, ["{}"])
        row = await batch.row(one.ref.run)
        stolen = replace(other.ref, lease_id=LeaseId(f"{one.ref.lease_id}~1"))
        turns = [(one.ref, row["t.head"], "a new beginning"), (stolen, other.head, "another")]
        if name == "alone":
            said = [await batch.bus.turn(*turn) for turn in turns]  # type: ignore[arg-type]
        else:
            said = await asyncio.gather(*(batch.bus.turn(*turn) for turn in turns))  # type: ignore[arg-type]
        answers.append([str(decision) for decision in said])
        await batch.aclose()
    assert answers[0] == answers[1]


async def test_what_a_refusal_takes_back_is_what_is_there_when_the_row_was_read_meanwhile(batch: Batch) -> None:
    """A field was put before it was read, and then the row was read whole: to the next command it is not absent."""
    text = "#!lua\n" + expand(
        '--#include "include/row.lua"\n'
        "local row = open_row(KEYS[1], {'a'})\n"
        "put(row, 'unread', 'new')\ndrop(row, 'dropped')\nwrite_rows()\nput(row, 'dropped', 'again')\n"
        "put(row, 'unread', 'newer')\nput(row, 'late', 'new')\nopen_row(KEYS[1])\nwrite_kept()\n"
        "local fields = {}\nfor field in pairs(row.data) do fields[#fields + 1] = field end\ntable.sort(fields)\n"
        "return {table.concat(fields, ' '), row.data.unread, row.data.late, tostring(row.data.dropped)}\n"
    )
    await batch.wire.call("HSET", batch.keys.slots, "a", "1", "unread", "old", "late", "old", "dropped", "old")
    said = await batch.wire.call("EVAL", text, 1, batch.keys.slots)
    assert said == [b"a late unread", b"new", b"old", b"nil"]
    await batch.wire.call("DEL", batch.keys.slots)
