"""What the same work costs without its meaning: two loops, each by as many processes as there are workers.

bare        the same messages through the same three streams with XADD, XREADGROUP and XACK, pipelined: no scripts,
            no fences, nothing remembered. One run is three hops.
physical    as many commands as a kind of run sends, carrying as many bytes there and back, as plain SET and GET,
            pipelined over the bare hiredis packer and reader: what server, sockets and processors allow

python -m workers.benching.bare bare URL PREFIX INDEX RUNS
python -m workers.benching.bare physical URL COMMANDS BYTES_IN BYTES_OUT
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bus.connection import Endpoint
from bus.port import Group
from bus.server_url import parse_url
from bus.wire import Wire
from workers.benching.kinds import DEPTH
from workers.benching.plain import Plain, packed

__all__ = ["Traffic", "bare_loop", "physical_limit"]

_STREAMS = (Group.WORKER, Group.SCORER, Group.PLANNER)
_KEYS = 512  # of the physical loop: enough not to be one hot entry, few enough to weigh nothing
_SET = len(packed(("SET", "physical:000", "")))
_GET = len(packed(("GET", "physical:read")))
_OK = len(b"+OK\r\n")
_BULK = len(b"$1000\r\n\r\n")


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one run sends and is sent: commands (those inside scripts are none), and bytes."""

    commands: float
    bytes_in: float
    bytes_out: float


async def bare_loop(endpoint: Endpoint, runs: int, workers: int) -> float:
    """Runs a second."""
    prefix = f"bare:{time.monotonic_ns()}"
    wire = await Wire.open(endpoint.address())
    try:
        for group in _STREAMS:
            await wire.call("XGROUP", "CREATE", f"{prefix}:{group.stream}", group, "0", "MKSTREAM")
        shares = _shares(runs, workers)
        seconds = await _together(
            [["bare", endpoint.target.url, prefix, str(index), str(share)] for index, share in enumerate(shares)]
        )
        for group in _STREAMS:
            await wire.call("DEL", f"{prefix}:{group.stream}")
    finally:
        wire.close()
    return runs / seconds


async def physical_limit(endpoint: Endpoint, runs: int, workers: int, traffic: Traffic) -> float:
    """Runs a second."""
    each_in, each_out = traffic.bytes_in / traffic.commands, traffic.bytes_out / traffic.commands
    shares = _shares(round(runs * traffic.commands), workers)
    seconds = await _together(
        [["physical", endpoint.target.url, str(share), f"{each_in:.1f}", f"{each_out:.1f}"] for share in shares]
    )
    return runs / seconds


def _shares(whole: int, parts: int) -> list[int]:
    return [whole // parts + (1 if index < whole % parts else 0) for index in range(parts)]


async def _together(orders: Sequence[Sequence[str]]) -> float:
    """Seconds from the word to the last one's end; they are up before."""
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "workers.benching.bare", *order,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )
        for order in orders
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        await process.stdout.readline()
    started = time.perf_counter()
    await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    seconds = time.perf_counter() - started
    if any(process.returncode for process in processes):
        raise RuntimeError(f"a process of the bare loop ended with {[process.returncode for process in processes]}")
    return seconds


# --- the processes ----------------------------------------------------------------------------------------


def _wait_for_word() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


async def _bare(url: str, prefix: str, consumer: str, runs: int) -> None:
    wire = await Wire.open(parse_url(url).address())
    _wait_for_word()
    payload = ["run", "c000000#1"]
    left = runs
    while left > 0:
        depth = min(DEPTH, left)
        left -= depth
        for group in _STREAMS:
            stream = f"{prefix}:{group.stream}"
            await asyncio.gather(*(wire.call("XADD", stream, "*", *payload) for _ in range(depth)))
            got = 0
            while got < depth:
                wanted: list[str | int] = ["COUNT", depth - got, "BLOCK", 1000, "STREAMS", stream, ">"]
                reply = await wire.call("XREADGROUP", "GROUP", group, consumer, *wanted)
                entries = reply[0][1] if reply else []
                got += len(entries)
                await asyncio.gather(*(wire.call("XACK", stream, group, entry[0]) for entry in entries))
    wire.close()


def _physical(url: str, commands: int, bytes_in: float, bytes_out: float) -> None:
    # Half of the commands write and half read, so that each carries what two of the original carry on average.
    value = b"v" * max(1, round(2 * bytes_in) - _SET - _GET)
    answer = b"v" * max(1, round(2 * bytes_out) - _OK - _BULK)
    with Plain(parse_url(url)) as plain:
        plain.calls([("SET", "physical:read", answer)])
        _wait_for_word()
        for at in range(0, commands, DEPTH):
            plain.calls(
                [
                    ("GET", "physical:read") if number % 2 else ("SET", f"physical:{number % _KEYS:03d}", value)
                    for number in range(at, min(at + DEPTH, commands))
                ]
            )


if __name__ == "__main__":
    _, what, *rest = sys.argv
    if what == "bare":
        asyncio.run(_bare(rest[0], rest[1], rest[2], int(rest[3])))
    else:
        _physical(rest[0], int(rest[1]), float(rest[2]), float(rest[3]))
