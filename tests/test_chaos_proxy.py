"""The network that chaos puts before a server: what it cuts, keeps back and delivers twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bus.errors import ServerUnreachable
from bus.target import Target
from bus.wire import Address, Wire
from tests.waiting import soon, until
from workers.chaos.proxy import Commands, Proxy

_ADD = "return redis.call('INCR', KEYS[1])"


@asynccontextmanager
async def between(server: Target, folder: Path) -> AsyncIterator[Proxy]:
    """A proxy before a server."""
    proxy = Proxy(folder / "p", Path(str(server.path)))
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()


def test_commands_are_told_apart_wherever_the_pieces_end() -> None:
    """A piece may end within a length, between two bytes of a line's end, or within an argument with one in it."""
    sent = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\nx\r\ny\r\n"
    whole = [sent[:20], sent[20:]]
    for cut in range(len(sent)):
        commands = Commands()
        assert commands.feed(sent[:cut]) + commands.feed(sent[cut:]) == whole
    assert [one.count(b"$") for one in whole] == [2, 3]


async def test_a_request_is_delivered_twice_and_answered_once(server: Target, tmp_path: Path) -> None:
    """The second one comes over a connection of its own: the client's next answer is that to its next request."""
    async with between(server, tmp_path) as proxy:
        wire = await Wire.open(Address(path=str(proxy.path)))
        sha = (await wire.call("SCRIPT", "LOAD", _ADD)).decode()
        proxy.to_repeat = 1
        assert await wire.call("EVALSHA", sha, 1, "n") in (1, 2)
        await until(lambda: proxy.repeated == 1, "the second delivery")
        direct = await Wire.open(server.address())
        while await direct.call("GET", "n") != b"2":
            pass
        assert await wire.call("GET", "n") == b"2"
        wire.close()
        direct.close()


async def test_a_cut_ends_what_is_in_flight_and_lets_the_next_connection_through(
    server: Target, tmp_path: Path
) -> None:
    """An unknown outcome, and no more than that."""
    async with between(server, tmp_path) as proxy:
        wire = await Wire.open(Address(path=str(proxy.path)))
        waits = wire.call("BLPOP", "nothing", 0)
        await until(lambda: not wire.lost, "the call to leave")
        assert proxy.cut() == 1
        with pytest.raises(ServerUnreachable):
            await soon(waits)
        again = await Wire.open(Address(path=str(proxy.path)))
        assert await again.call("PING") == b"PONG"
        again.close()


async def test_a_silent_connection_is_found_out_by_its_client_alone(server: Target, tmp_path: Path) -> None:
    """Half open: nobody says that it has ended."""
    async with between(server, tmp_path) as proxy:
        wire = await Wire.open(Address(path=str(proxy.path)))
        wire.hurry(0.1)
        assert proxy.silence() == 1
        with pytest.raises(ServerUnreachable, match="no answer"):
            await soon(wire.call("PING"))
