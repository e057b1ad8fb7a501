"""Script calls a second from one process: through all of our client, and the very same messages without it.

What a call goes through in a worker: an envelope is packed, keys are named, the call is put into the connection's
buffer, its answer is read, typed and handed to the coroutine that waits. Beside it the bytes alone: hiredis packs,
one write, hiredis reads. Both keep 64 calls under way; both make the server do the same.

    python -m workers.benching.calls URL CALLS ROUNDS     prints one line of JSON
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from bus.connection import Endpoint, parse_url
from bus.errors import ViolationError
from bus.fences.completion import Completion
from bus.fences.fence import Channel
from bus.keys import BatchKeys
from bus.link import Link
from bus.types import BatchId, LeaseId, Plane, RunId
from bus.wire import Reply
from workers.benching.kinds import DEPTH
from workers.benching.plain import Plain
from workers.runtime import SystemRuntime

__all__ = ["CallRates", "measure_calls"]

Command = tuple[str | bytes | int, ...]


@dataclass(frozen=True, slots=True)
class CallRates:
    """Calls a second, a figure a round; and what our side takes of its processor, in microseconds a call."""

    ours: tuple[float, ...]
    bare: tuple[float, ...]
    cpu_us: tuple[float, ...]


async def measure_calls(endpoint: Endpoint, calls: int, rounds: int) -> CallRates:
    """Raises RuntimeError when the process fails. Empties the server."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "workers.benching.calls", endpoint.target.url, str(calls), str(rounds),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"the process that calls scripts ended with {process.returncode}")
    told = json.loads(out)
    return CallRates(tuple(told["ours"]), tuple(told["bare"]), tuple(told["cpu_us"]))


class _Caller:
    """Calls of one small script, each for a run of its own: `completion.lease`."""

    def __init__(self, link: Link, calls: int) -> None:
        self._link, self._calls = link, calls
        self._fence = Completion(Channel(link, BatchKeys(Plane.LIVE, BatchId("calls")), SystemRuntime()))

    async def call_all(self) -> None:
        for at in range(0, self._calls, DEPTH):
            numbers = range(at, min(at + DEPTH, self._calls))
            results = await asyncio.gather(
                *(self._fence.lease(RunId(f"c{number}#1"), LeaseId(f"{number:032x}")) for number in numbers)
            )
            if not all(result.applied for result in results):
                raise ViolationError(f"a lease of a free run was refused: {results}")

    async def recorded(self) -> list[Command]:
        """What goes over the wire for that."""
        wire = await self._link.wire()
        sent: list[Command] = []
        call: Callable[..., asyncio.Future[Reply]] = wire.call

        def recording(*command: str | bytes | int, text: bool = False) -> asyncio.Future[Reply]:
            sent.append(command)
            return call(*command, text=text)

        setattr(wire, "call", recording)  # noqa: B010 - a method of one object, for once
        try:
            await self.call_all()
        finally:
            delattr(wire, "call")
        return [command for command in sent if command[0] == "EVALSHA"]


async def _process(url: str, calls: int, rounds: int) -> None:
    target = parse_url(url)
    link = Link(Endpoint(target), SystemRuntime())
    ours: list[float] = []
    bare: list[float] = []
    cpu: list[float] = []
    caller = _Caller(link, calls)
    commands = await caller.recorded()
    with Plain(target) as plain:
        for _ in range(rounds):
            await link.command("FLUSHALL")  # the same calls meet the same empty server; it keeps its scripts
            started, used = time.perf_counter(), time.process_time()
            await caller.call_all()
            ours.append(calls / (time.perf_counter() - started))
            cpu.append(1e6 * (time.process_time() - used) / calls)
            await link.command("FLUSHALL")
            started = time.perf_counter()
            for at in range(0, len(commands), DEPTH):
                plain.calls(commands[at : at + DEPTH])
            bare.append(calls / (time.perf_counter() - started))
    link.close()
    print(json.dumps({"ours": ours, "bare": bare, "cpu_us": cpu}))


if __name__ == "__main__":
    asyncio.run(_process(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
