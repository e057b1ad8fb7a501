"""Workers far away: the same batch through a wire that is late, at more and more runs in hand.

The workers, and nobody else, reach their server over a proxy that holds each piece for half a round trip in each
direction. A run in hand then waits for its round trips; more of them in hand wait together. So what distance takes from
the throughput, concurrency gives back, up to what the worker's processor can do: Little's law.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from bus.types import BatchId
from workers.benching.driving import staged
from workers.benching.kinds import WARM, Kind, SuiteOptions, make_suite
from workers.benching.spread import Spread

__all__ = ["DEPTHS", "FAR_MS", "Distance", "measure_distance"]

FAR_MS = 50.0
"""Milliseconds there and back: another region of the same continent."""

DEPTHS = (16, 64, 256, 1_024)
"""Runs that a worker has in hand."""


@dataclass(frozen=True, slots=True)
class Distance:
    """One number of runs in hand: runs a second, a figure a round, near and far."""

    depth: int
    near: tuple[float, ...]
    far: tuple[float, ...]

    @property
    def round_trips(self) -> float:
        """That a run in hand waits for, by Little's law: runs in hand over runs a second, in round trips."""
        return self.depth / Spread.of(self.far).median / (FAR_MS / 1000)

    def as_json(self) -> dict[str, object]:
        """Spreads, and what follows from them."""
        return {
            "runs_in_hand": self.depth,
            "near_per_s": Spread.of(self.near).as_json(),
            "far_per_s": Spread.of(self.far).as_json(),
            "round_trips_in_hand": round(self.round_trips, 2),
        }


async def measure_distance(
    directory: Path, runs: int, rounds: int, tell: Callable[[str], None]
) -> tuple[Distance, ...]:
    """One worker, in turns near and far, at each of `DEPTHS`. Raises ViolationError for an incomplete history."""
    found: list[Distance] = []
    for depth in DEPTHS:
        rates: dict[float, list[float]] = {0.0: [], FAR_MS: []}
        for number in range(rounds):
            for away, measured in rates.items():
                measured.append(await _rate(directory / f"{depth}-{number}-{away:g}", runs, depth, away))
        one = Distance(depth, tuple(rates[0.0]), tuple(rates[FAR_MS]))
        found.append(one)
        near, far = Spread.of(one.near).median, Spread.of(one.far).median
        tell(f"{depth:,} runs in hand   {near:,.0f} runs/s beside the server, {far:,.0f} at {FAR_MS:g} ms")
    return tuple(found)


async def _rate(directory: Path, runs: int, depth: int, away_ms: float) -> float:
    options = SuiteOptions(runs, depth, bound=max(512, 2 * depth))
    suite = make_suite(directory / "suite", Kind.NOOP, options)
    warm = make_suite(directory / "warm", Kind.NOOP, SuiteOptions(WARM, depth))
    async with staged(directory / "home", 0) as stage:
        server = stage.endpoint.address().path
        assert server is not None, "the embedded server listens on a socket"
        async with _line(directory / "far", server, away_ms / 2000) as url:
            stage.worker_url = url
            await stage.start(1)
            await stage.warm(warm)
            return (await stage.run(suite, Kind.NOOP, BatchId("bench"))).runs_per_s


@contextlib.asynccontextmanager
async def _line(path: Path, server: str, late: float) -> AsyncIterator[str]:
    """A socket that leads to the server's, `late` seconds in each direction, however much is on its way. Gives its URL.

    (That of chaos holds up what comes behind; a distance does not.)
    """
    open_now: set[asyncio.StreamWriter] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_now.add(writer)
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                loop.call_later(late, writer.write, data)
        loop.call_later(late, writer.close)
        open_now.discard(writer)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(server)
        await asyncio.gather(carry(reader, to_server), carry(from_server, writer))

    listening = await asyncio.start_unix_server(accept, str(path))
    try:
        yield f"unix://{path}"
    finally:
        listening.close()
        for writer in open_now:
            writer.transport.abort()
