"""A batch in partitions on a real server, without a fleet.

async with parts_on(server, split(spec(quorum=4), 3)) as parts:      # b.p1 to b.p3, their runs admitted
    await ended(parts[0], scored=2)                                  # two scored, the others holes; closed over that
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from bus.partitions import taken_by
from bus.port import BatchSpec, NextRuns
from bus.target import Target
from bus.types import BatchId, ConsumerId, Digest, RunId
from tests.batches import Batch

__all__ = ["ROOT", "RUNS", "ended", "parts_on", "spec"]

ROOT = BatchId("b")
RUNS = [RunId(f"c{number}#1") for number in range(7)]


def spec(**fields: object) -> BatchSpec:
    """A whole batch of seven runs."""
    declared = BatchSpec(
        batch=ROOT, suite="s", suite_digest=Digest("d" * 64), suite_path="/s", intended=7, quorum=4,
        bins=("pass", "fail"), bound=10, max_in_flight=11, max_deliveries=3, lease_ms=1_000,
    )  # fmt: skip
    return replace(declared, **fields)  # type: ignore[arg-type]


@asynccontextmanager
async def parts_on(server: Target, specs: Sequence[BatchSpec]) -> AsyncIterator[list[Batch]]:
    """Declared, with their runs admitted."""
    async with AsyncExitStack() as stack:
        found = []
        for one in specs:
            fields = {
                field.name: getattr(one, field.name) for field in dataclasses.fields(one) if field.name != "batch"
            }
            batch = await Batch.open(server.address(), name=one.batch, **fields)
            stack.push_async_callback(batch.aclose)
            runs = taken_by(one.part, RUNS)
            ahead = NextRuns(0, runs, (), ConsumerId("p"), "candidate", "judge")
            assert (await batch.bus.admit(one.batch, ahead)).applied
            found.append(batch)
        yield found


async def ended(batch: Batch, scored: int) -> None:
    """So many of its runs are scored, the others are holes; it is closed over that."""
    for _ in range(scored):
        await batch.scored()
    for row in await batch.bus.rows(batch.name, await batch.bus.run_ids(batch.name)):
        if not row.state.ended:
            await batch.end(row.run)
    await batch.closed()
