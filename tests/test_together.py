"""Commands that share a call of their script: each must be decided as if it had come alone behind those before it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

import pytest

from bus.chain import EMPTY_HEAD
from bus.errors import ReplyError
from bus.history import read_history
from bus.port import Entry, Group
from bus.scripts import script
from bus.target import Target
from bus.together import AT_ONCE
from bus.types import Decision, RunId
from tests.batches import S1, W1, W2, Batch, Held, calls_of, opened

RUNS = 12


@pytest.fixture
async def batch(server: Target) -> AsyncIterator[Batch]:
    """A dozen runs, all admitted."""
    async with opened(server.address(), runs=RUNS) as one:
        await one.admit()
        yield one


async def calls_of_scripts(batch: Batch) -> int:
    """Since the server's start."""
    return (await calls_of(batch.wire))["evalsha"]


async def read_all(batch: Batch, group: Group = Group.WORKER) -> list[Entry]:
    """All that waits for a group."""
    return await batch.bus.read(group, W1 if group is Group.WORKER else S1, [batch.name], RUNS, 1)


async def claim_all(batch: Batch, entries: Sequence[Entry]) -> list[Decision]:
    """All of them at the same moment."""
    return await asyncio.gather(*(batch.bus.claim(entry, batch.lease(), W1) for entry in entries))


async def test_what_is_asked_for_at_the_same_moment_is_one_call(batch: Batch) -> None:
    """Twelve claims in one EVALSHA, each with an answer of its own."""
    entries = await read_all(batch)
    before = await calls_of_scripts(batch)
    decisions = await claim_all(batch, entries)
    assert await calls_of_scripts(batch) == before + 1
    assert [decision.applied for decision in decisions] == [True] * RUNS
    assert {(await batch.row(entry.run))["lease"] for entry in entries} == {f"L{n}" for n in range(1, RUNS + 1)}


async def test_a_call_carries_no_more_than_its_share(server: Target) -> None:
    """All other clients wait for a script: a crowd is cut in pieces."""
    async with opened(server.address(), runs=2 * AT_ONCE, bound=2 * AT_ONCE, name="crowd") as batch:
        await batch.admit()
        entries = await batch.bus.read(Group.WORKER, W1, [batch.name], 2 * AT_ONCE, 1)
        before = await calls_of_scripts(batch)
        decisions = await claim_all(batch, entries)
        assert await calls_of_scripts(batch) == before + 2
        assert all(decision.applied for decision in decisions)


@dataclass(frozen=True, slots=True)
class _Left:
    """What a batch looks like, without the moment at which it happened."""

    rows: Mapping[RunId, Mapping[str, str]]
    batch: Mapping[str, str]
    history: Sequence[object]


async def left_of(batch: Batch) -> _Left:
    """What is there now."""
    history = []
    async for entry in read_history(batch.bus.link, batch.keys):
        parts = [(part.fence, part.op, part.verb, part.reason) for part in entry.parts]
        history.append((parts, entry.envelope.get("run"), entry.envelope.get("lease_id")))
    rows = {run: await batch.row(run) for run in batch.runs}
    for row in rows.values():
        row.pop("entry")
        for field in [field for field in row if field.startswith(("place", "d."))]:  # drawn anew for each batch
            del row[field]
    flat = [item.decode() for item in await batch.wire.call("HGETALL", batch.keys.batch_row)]
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    for field in ("incarnation", "spec", "declared"):
        del fields[field]
    return _Left(rows, fields, history)


async def test_a_crowd_leaves_what_the_same_commands_leave_one_after_another(server: Target) -> None:
    """Some granted, some refused, one twice: same answers, same rows, same counters, same history."""
    left, answers = [], []
    for name in ("alone", "crowd"):
        async with contextlib.aclosing(await Batch.open(server.address(), runs=RUNS, name=name)) as batch:
            await batch.admit()
            entries = await read_all(batch)
            await batch.taken(entries[3], W2)  # the fourth claim comes from who does not own it
            claims = [(entry, batch.lease(), W1) for entry in entries]
            claims.insert(6, claims[5])  # a resend beside its first copy
            claims.append((entries[0], claims[1][1], W1))  # the first run again, under the second one's lease
            if name == "alone":
                said = [await batch.bus.claim(*claim) for claim in claims]
            else:
                said = await asyncio.gather(*(batch.bus.claim(*claim) for claim in claims))
            answers.append([str(decision) for decision in said])
            left.append(await left_of(batch))
    assert answers[0] == answers[1]
    assert "reject not_owner (run.claim)" in answers[0]
    assert "reject lease_reused (run.claim)" in answers[0]
    assert left[0] == left[1]


async def test_a_bound_holds_within_a_crowd(server: Target) -> None:
    """The counter that the third command compares is the one that the first two have moved, not the server's."""
    async with opened(server.address(), runs=4, name="bounded", max_in_flight=2) as batch:
        await batch.admit()
        for _ in range(4):
            await batch.seal(await batch.claimed())
        entries = await batch.bus.read(Group.SCORER, S1, [batch.name], 4, 1)
        said = await asyncio.gather(*(batch.bus.score_claim(entry, batch.lease(), S1) for entry in entries))
        assert [str(one) for one in said[2:]] == ["reject backpressure (histogram.fence)"] * 2
        assert await batch.batch_field("fenced") == "2"


async def test_who_is_refused_late_in_a_crowd_leaves_nothing(batch: Batch) -> None:
    """Its answer was on the chain already when its admission turned out to be gone: its end must not write it."""
    held = [await batch.claimed(entry=entry) for entry in await read_all(batch)]
    row = await batch.row(held[4].ref.run)
    await batch.wire.call("HDEL", batch.keys.planes, f"a:{row['place']}")
    said = await asyncio.gather(*(sealed(batch, one) for one in held))
    assert str(said[4]) == "reject not_admitted (plane.write)"
    assert await batch.row(held[4].ref.run) == row
    assert [one.applied for one in said] == [index != 4 for index in range(RUNS)]


async def test_one_that_breaks_takes_nobody_along(batch: Batch) -> None:
    """A run's transcript is no transcript: its seal is an error, the others' are applied and written."""
    held = [await batch.claimed(entry=entry) for entry in await read_all(batch)]
    broken = held[4].ref
    await batch.wire.call("SET", batch.keys.transcript(broken.run, 0), "no transcript")
    said = await asyncio.gather(*(sealed(batch, one) for one in held), return_exceptions=True)
    assert isinstance(said[4], ReplyError)
    assert said[4].code == "WRONGTYPE"
    others = [one for index, one in enumerate(said) if index != 4]
    assert all(isinstance(one, Decision) and one.applied for one in others)
    assert await batch.batch_field("n:sealed") == str(RUNS - 1)
    assert (await batch.row(broken.run))["state"] == "running"
    await batch.wire.call("DEL", batch.keys.transcript(broken.run, 0))
    assert (await sealed(batch, held[4])).applied


async def sealed(batch: Batch, held: Held) -> Decision:
    """A run's end."""
    return await batch.bus.seal(held.ref, EMPTY_HEAD, 1, "answer", "", "")


async def test_who_gives_up_waiting_leaves_the_others_their_answers(batch: Batch) -> None:
    """A cancelled command's answer is dropped; its neighbours' still match."""
    entries = await read_all(batch)
    tasks = [asyncio.create_task(batch.bus.claim(entry, batch.lease(), W1)) for entry in entries]
    await asyncio.sleep(0)
    tasks[0].cancel()
    said = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(said[0], asyncio.CancelledError)
    decisions = [one for one in said if isinstance(one, Decision)]
    assert len(decisions) == RUNS - 1
    for entry, decision in zip(entries[1:], decisions, strict=True):
        assert decision.applied
        assert (await batch.row(entry.run))["state"] == "running"


async def test_a_call_that_does_not_say_what_it_carries_is_an_error_and_writes_nothing(batch: Batch) -> None:
    """Only a client of ours counts its arguments; what another sends is not guessed at."""
    target = script("run.seal")
    keys = [batch.keys.batch_row] * (len(target.keys))
    await batch.wire.call("SCRIPT", "LOAD", target.text)
    async with batch.unchanged():
        for argv in (["", "x"], ["2", "x"], ["1 1", "x"], ["no"]):
            with pytest.raises(ReplyError, match="how many arguments"):
                await batch.wire.call("EVALSHA", target.sha, len(keys), *keys, *argv)


async def test_much_work_is_not_put_into_one_call(batch: Batch) -> None:
    """A call's length is bounded by what its commands bring, not by their number alone."""
    held = [await batch.claimed(entry=entry) for entry in (await read_all(batch))[:3]]
    before = await calls_of_scripts(batch)
    events = [str(number) for number in range(100)]
    said = await asyncio.gather(*(batch.bus.append(one.ref, EMPTY_HEAD, 1, events) for one in held))
    assert [one.applied for one in said] == [True] * 3
    assert await calls_of_scripts(batch) == before + 3


async def test_what_broke_behind_its_first_write_leaves_no_event_in_the_way(batch: Batch) -> None:
    """The answer was written when the message to the scorers could not be. Sent again, it stands there once."""
    held = await batch.claimed()
    await batch.wire.call("RENAME", batch.keys.stream("scores"), "elsewhere")
    await batch.wire.call("SET", batch.keys.stream("scores"), "no stream")
    with pytest.raises(ReplyError, match="WRONGTYPE"):
        await sealed(batch, held)
    assert await batch.wire.call("LLEN", batch.keys.transcript(held.ref.run, 0)) == 1
    await batch.wire.call("RENAME", "elsewhere", batch.keys.stream("scores"))
    assert (await sealed(batch, held)).applied
    assert [event.payload for event in await batch.bus.transcript(batch.name, held.ref.run)] == ["answer"]
