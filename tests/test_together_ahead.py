"""What the commands of a call will all ask for is read before the first of them: it changes their cost, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bus.chain import EMPTY_HEAD
from bus.errors import ReplyError
from bus.port import Group, Judgement, Ref
from bus.target import Target
from bus.types import Decision, Gen
from tests.batches import S1, W1, Batch, Held, calls_of, opened

RUNS = 12


@pytest.fixture
async def batch(server: Target) -> AsyncIterator[Batch]:
    """A dozen runs, all admitted."""
    async with opened(server.address(), runs=RUNS) as one:
        await one.admit()
        yield one


async def counted(batch: Batch, *names: str) -> list[int]:
    """How often the server has executed these commands, those inside scripts included."""
    found = await calls_of(batch.wire)
    return [found[name] for name in names]


async def claimed(batch: Batch) -> list[Held]:
    """All runs, claimed at the same moment."""
    entries = await batch.bus.read(Group.WORKER, W1, [batch.name], RUNS, 1)
    leases = [batch.lease() for _ in entries]
    asked = [batch.bus.claim(entry, lease, W1) for entry, lease in zip(entries, leases, strict=True)]
    said = await asyncio.gather(*asked)
    return [
        Held(entry, Ref(entry.batch, entry.run, lease, Gen(one.answer["gen"])), one)
        for entry, lease, one in zip(entries, leases, said, strict=True)
    ]


async def sealed(batch: Batch, held: Held) -> Decision:
    """A run's end."""
    return await batch.bus.seal(held.ref, EMPTY_HEAD, 1, "answer", "", "")


async def test_what_a_crowd_asks_of_what_it_shares_is_asked_once(batch: Batch) -> None:
    """A field for each run, of the leases, the desk and the plane; and who has its entry: one command for all."""
    fields, owners = await counted(batch, "hget", "xpending")
    held = await claimed(batch)
    assert all(one.applied for one in await asyncio.gather(*(sealed(batch, one) for one in held)))
    entries = await batch.bus.read(Group.SCORER, S1, [batch.name], RUNS, 1)
    leases = [batch.lease() for _ in entries]
    asked = [batch.bus.score_claim(entry, lease, S1) for entry, lease in zip(entries, leases, strict=True)]
    granted = [one.answer for one in await asyncio.gather(*asked)]
    assert await asyncio.gather(
        *(
            batch.bus.score(
                Ref(entry.batch, entry.run, lease, Gen(one["epoch"])),
                Judgement(
                    head=one["head"], tree_hash="", candidate=one["candidate"], judge=one["judge"],
                    judge_epoch=one["judge_epoch"], bin="pass", value="1", detail="",
                ),
            )
            for entry, lease, one in zip(entries, leases, granted, strict=True)
        )
    )  # fmt: skip
    assert await batch.batch_field("n:scored") == str(RUNS)
    assert await counted(batch, "hget", "xpending") == [fields, owners + 2]


async def test_a_run_that_cannot_be_read_ahead_takes_nobody_along(batch: Batch) -> None:
    """Its row is no hash: its seal is an error, and those behind it ask for themselves."""
    held = await claimed(batch)
    key = batch.keys.run(held[2].ref.run)
    await batch.wire.call("RENAME", key, "elsewhere")
    await batch.wire.call("SET", key, "no row")
    said = await asyncio.gather(*(sealed(batch, one) for one in held), return_exceptions=True)
    assert isinstance(said[2], ReplyError)
    assert [isinstance(one, Decision) and one.applied for one in said] == [index != 2 for index in range(RUNS)]
    await batch.wire.call("RENAME", "elsewhere", key)
    assert (await sealed(batch, held[2])).applied


async def test_what_all_of_them_need_and_cannot_be_read_grants_nothing_to_any(batch: Batch) -> None:
    """The second of them must not take leases that the first could not read for leases that are not there."""
    await batch.wire.call("SET", batch.keys.leases, "no leases")
    entries = await batch.bus.read(Group.WORKER, W1, [batch.name], 3, 1)
    asked = [batch.bus.claim(entry, batch.lease(), W1) for entry in entries]
    said = await asyncio.gather(*asked, return_exceptions=True)
    assert [getattr(one, "code", str(one)) for one in said] == ["WRONGTYPE"] * 3
    assert [await batch.state(entry.run) for entry in entries] == ["queued"] * 3
    await batch.wire.call("DEL", batch.keys.leases)
    assert (await batch.bus.claim(entries[0], batch.lease(), W1)).applied
