"""What is said of a batch that is not there. On a real server."""

from __future__ import annotations

from contextlib import AsyncExitStack

from bus.archived import began_ms
from bus.partitions import split
from bus.redis_bus import RedisBus
from bus.target import Target
from bus.types import BatchId, Plane
from tests.batches import Batch, FixedDoor
from tests.parted import parts_on, spec
from workers.results.missing import no_such_batch
from workers.runtime import SystemRuntime

NOBODY = BatchId("nosuch")


async def next_ms(batch: Batch) -> None:
    """Wait until what is declared next is newer than this one, by the server's clock."""
    link, began = batch.bus.link, await began_ms(batch.bus.link, batch.bus.keys(batch.name))
    while True:
        seconds, micros = await link.command("TIME")
        if int(seconds) * 1_000 + int(micros) // 1_000 > began:
            return


async def test_a_name_like_none_is_answered_with_the_newest_batches(server: Target) -> None:
    """Those that somebody may have in mind: not the last of the alphabet, and none that merely shares some letters."""
    async with AsyncExitStack() as stack:
        for name in ("zebra", "argscheck", "smoke"):
            batch = await Batch.open(server.address(), runs=1, name=name)
            stack.push_async_callback(batch.aclose)
            await next_ms(batch)
        said = (
            "no batch 'nosuch' on this server, plane live; it has smoke, argscheck, zebra "
            "(another plane: --plane shadow)"
        )
        assert await no_such_batch(batch.bus, NOBODY) == said
        parts = await stack.enter_async_context(parts_on(server, split(spec(), 3)))
        said = said.replace("it has smoke, argscheck, zebra", "the newest of 4 are b, smoke, argscheck")
        assert await no_such_batch(parts[0].bus, NOBODY) == said
        near = "no batch 'zebr' on this server; did you mean zebra?"
        assert await no_such_batch(parts[0].bus, BatchId("zebr")) == near


async def test_a_server_with_one_batch_or_none_says_so(server: Target) -> None:
    """A plane's batches are its own."""
    shadow = await Batch.open(server.address(), runs=1, name="only", plane=Plane.SHADOW)
    live = RedisBus(FixedDoor(server.address()), SystemRuntime())
    try:
        assert "plane shadow; it has only (another plane: --plane live)" in await no_such_batch(shadow.bus, NOBODY)
        assert "plane live; there are none (another plane: --plane shadow)" in await no_such_batch(live, NOBODY)
    finally:
        await live.aclose()
        await shadow.aclose()
