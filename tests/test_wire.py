"""The shared connection: what is sent together, whose reply is whose, what a lost or silent server does to waiters."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bus.errors import ReplyError, ServerUnfit, ServerUnreachable
from bus.target import Target
from bus.wire import Address, Wire
from tests.peer import echo, peer
from tests.waiting import soon, until


@contextlib.asynccontextmanager
async def wire_to(address: Address, *, silence: float = 15.0) -> AsyncIterator[Wire]:
    """An open wire, closed at the end."""
    wire = await Wire.open(address, silence=silence)
    try:
        yield wire
    finally:
        wire.close()


class Counted:
    """A transport that counts what is written through it."""

    def __init__(self, wire: Wire) -> None:
        self.writes: list[bytes] = []
        self._inner = wire._transport
        wire._transport = self  # type: ignore[assignment]

    def write(self, data: bytes) -> None:
        """Note one write."""
        self.writes.append(data)
        self._inner.write(data)

    def is_closing(self) -> bool:
        """As the transport says."""
        return self._inner.is_closing()


# --- one write --------------------------------------------------------------------------------------------


async def test_calls_made_at_once_leave_as_one_write(server: Target) -> None:
    """Three calls without an await between them cost one system call and one round trip."""
    async with wire_to(server.address()) as wire:
        counted = Counted(wire)
        first, second, third = wire.call("SET", "k", "1"), wire.call("INCR", "k"), wire.call("GET", "k")
        assert [await first, await second, await third] == [b"OK", 2, b"2"]
        assert len(counted.writes) == 1


async def test_calls_that_many_coroutines_make_in_one_turn_leave_in_few_writes(server: Target) -> None:
    """Nobody has to collect calls: that a hundred tasks run in the same turn of the loop is enough.

    Not in one: the server works on the first while the last are packed.
    """
    async with wire_to(server.address()) as wire:
        counted = Counted(wire)

        async def echoed(word: str) -> bytes:
            reply: bytes = await wire.call("ECHO", word)
            return reply

        words = [f"w{n}" for n in range(100)]
        assert await asyncio.gather(*map(echoed, words)) == [word.encode() for word in words]
        assert [write.count(b"ECHO") for write in counted.writes] == [16] * 6 + [4]


async def test_a_call_made_after_the_write_leaves_in_the_next(server: Target) -> None:
    """The buffer is handed over whole; what comes later starts a new one, and nothing is sent twice."""
    async with wire_to(server.address()) as wire:
        counted = Counted(wire)
        await wire.call("INCR", "k")
        await wire.call("INCR", "k")
        assert await wire.call("GET", "k") == b"2"
        assert len(counted.writes) == 3


# --- whose reply ------------------------------------------------------------------------------------------


async def test_an_error_reply_belongs_to_its_call_alone(server: Target) -> None:
    """A command that the server refuses in the middle of a write leaves its neighbours' replies as they are."""
    async with wire_to(server.address()) as wire:
        before, wrong, after = wire.call("SET", "k", "x"), wire.call("INCR", "k"), wire.call("GET", "k")
        assert await before == b"OK"
        with pytest.raises(ReplyError, match="not an integer"):
            await wrong
        assert await after == b"x"
        assert not wire.lost


async def test_many_commands_give_their_error_replies_in_place(server: Target) -> None:
    """`calls` returns errors instead of raising the first and losing the rest."""
    async with wire_to(server.address()) as wire:
        good, bad, last = await wire.calls([("SET", "k", "x"), ("LPUSH", "k", "y"), ("GET", "k")])
        assert (good, last) == (b"OK", b"x")
        assert isinstance(bad, ReplyError)
        assert bad.code == "WRONGTYPE"


async def test_many_commands_that_nobody_waits_for_any_more_do_not_shift_their_neighbours_replies() -> None:
    """The replies of many are one wait: cancelled, all of them are dropped, and no more than these."""
    async with peer() as one, wire_to(one.address) as wire:
        one.may_answer.clear()
        before = wire.call("ECHO", "before")
        many = wire.calls([("ECHO", f"w{n}") for n in range(20)])
        after = wire.calls([("ECHO", "a"), ("ECHO", "b")])
        await until(lambda: one.heard, "the commands to arrive")
        many.cancel()
        one.may_answer.set()
        assert await soon(before) == b"before"
        assert await soon(after) == [b"a", b"b"]
        assert await soon(wire.calls([])) == []


async def test_many_commands_are_sent_whole_or_not_at_all(server: Target) -> None:
    """The third cannot be packed: had two left, their replies would be those of whoever comes next."""
    async with wire_to(server.address()) as wire:
        with pytest.raises(TypeError):
            wire.calls([("INCR", "k"), ("INCR", "k"), ("SET", "k", object())])  # type: ignore[list-item]
        assert await soon(wire.call("ECHO", "mine")) == b"mine"
        assert await soon(wire.call("EXISTS", "k")) == 0


async def test_the_bytes_of_a_text_come_as_text_and_of_no_other_reply(server: Target) -> None:
    """A script's answer is text, its surrogates too; what stands beside it on the connection may be anything."""
    async with wire_to(server.address()) as wire:
        lone = "é and half of a pair \ud800"
        before, text, after = wire.call("ECHO", lone), wire.call("ECHO", lone, text=True), wire.call("ECHO", b"\xff")
        assert await before == lone.encode("utf-8", "surrogatepass")
        assert await text == lone
        assert await after == b"\xff"
        assert await wire.calls([("ECHO", "a"), ("MGET", "none", "none")], text=True) == ["a", [None, None]]


async def test_a_text_that_is_none_spoils_neither_those_beside_it_nor_the_next(server: Target) -> None:
    """A script's reply answers a crowd, and one of it may ask about what another client left there."""
    async with wire_to(server.address()) as wire:
        wrong = wire.call("EVAL", "return {'a', '\\255 \\237\\160\\189', 'b'}", 0, text=True)
        after = wire.call("ECHO", "after", text=True)
        assert await wrong == ["a", "\udcff \ud83d", "b"]
        assert await after == "after"


@pytest.mark.parametrize("gone", [{0}, {1}, {3}, {0, 3}, {0, 1, 2, 3}], ids=str)
async def test_a_waiter_cancelled_in_flight_does_not_shift_its_neighbours_replies(gone: set[int]) -> None:
    """The command has left; its reply comes, is dropped, and everybody else is given his own."""
    async with peer() as one, wire_to(one.address) as wire:
        one.may_answer.clear()
        waiters = [wire.call("ECHO", f"w{n}") for n in range(4)]
        await until(lambda: one.heard, "the commands to arrive")
        for n in gone:
            waiters[n].cancel()
        one.may_answer.set()
        await _own_replies(wire, waiters, gone)


@pytest.mark.parametrize("gone", [{0}, {1}, {3}, {0, 1, 2, 3}], ids=str)
async def test_a_waiter_cancelled_before_the_write_does_not_shift_its_neighbours_replies(gone: set[int]) -> None:
    """Its command is packed already and leaves all the same: cancelled means unknown, not unsent."""
    async with peer() as one, wire_to(one.address) as wire:
        waiters = [wire.call("ECHO", f"w{n}") for n in range(4)]
        for n in gone:
            waiters[n].cancel()
        await _own_replies(wire, waiters, gone)
        assert [command[1] for command in one.heard[:4]] == [b"w0", b"w1", b"w2", b"w3"]


async def _own_replies(wire: Wire, waiters: Sequence[asyncio.Future[bytes]], gone: Iterable[int]) -> None:
    for n, waiter in enumerate(waiters):
        if n not in gone:
            assert await soon(waiter) == f"w{n}".encode()
    assert await soon(wire.call("ECHO", "later")) == b"later"


async def test_a_cancelled_task_does_not_take_its_neighbours_with_it(server: Target) -> None:
    """A task that awaits a call is cancelled, as a fenced lease's is; the others of that write do not notice."""
    async with wire_to(server.address()) as wire:

        async def echoed(word: str) -> bytes:
            reply: bytes = await wire.call("ECHO", word)
            return reply

        tasks = [asyncio.create_task(echoed(f"w{n}")) for n in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        replies = await asyncio.gather(*tasks, return_exceptions=True)
        assert replies[0] == b"w0"
        assert isinstance(replies[1], asyncio.CancelledError)
        assert replies[2] == b"w2"


async def test_replies_that_come_in_pieces_are_put_together() -> None:
    """A read may end anywhere, in the middle of a number as well as between two replies."""
    reply = b"*2\r\n$3\r\none\r\n:12\r\n"
    held: list[bytes] = []

    def in_pieces(command: list[bytes]) -> bytes:
        if command[1] == b"0":
            held.append(reply)
        piece, held[0] = held[0][:1], held[0][1:]
        return piece

    async with peer(in_pieces) as one, wire_to(one.address) as wire:
        first = wire.call("ECHO", "0")
        # Each further command brings one more byte; none of them is answered by it.
        rest = [wire.call("ECHO", str(n)) for n in range(1, len(reply))]
        assert await soon(first) == [b"one", 12]
        assert not any(waiter.done() for waiter in rest)


# --- a connection that is gone ----------------------------------------------------------------------------


async def test_a_lost_connection_fails_everyone_who_waits() -> None:
    """Their outcome is unknown, which is what ServerUnreachable means; each is told with an error of his own."""
    async with peer(lambda _command: None) as one, wire_to(one.address) as wire:
        waiters = [wire.call("INCR", "k") for _ in range(5)]
        errors = await soon(asyncio.gather(*waiters, return_exceptions=True))
        assert all(isinstance(error, ServerUnreachable) for error in errors)
        assert len(set(map(id, errors))) == 5
        assert wire.lost


async def test_a_call_on_a_lost_connection_fails_at_once() -> None:
    """It does not wait for a reply that nobody can send."""
    async with peer(lambda _command: None) as one, wire_to(one.address) as wire:
        with pytest.raises(ServerUnreachable):
            await soon(wire.call("PING"))
        late = wire.call("PING")
        assert late.done()
        with pytest.raises(ServerUnreachable):
            await late


async def test_a_connection_lost_in_the_middle_of_a_reply_is_no_reply() -> None:
    """Half of a value is not the value."""
    async with peer(lambda c: b"$10\r\nhalf" if c[0] == b"GET" else None) as one, wire_to(one.address) as wire:
        half, last = wire.call("GET", "k"), wire.call("QUIT")
        for waiter in (half, last):
            with pytest.raises(ServerUnreachable):
                await soon(waiter)


async def test_closing_leaves_nobody_waiting() -> None:
    """What was in flight has an unknown outcome, and is told so at once."""
    async with peer(lambda _command: b"") as one, wire_to(one.address) as wire:
        waiter = wire.call("PING")
        await until(lambda: one.heard, "the command to arrive")
        wire.close()
        with pytest.raises(ServerUnreachable, match="closed"):
            await soon(waiter)
        await soon(one.left.wait())


async def test_a_lost_connection_leaves_nothing_behind_in_the_loop() -> None:
    """A link opens many in its life; a timer that went on would keep each of them, with its buffers, for ever."""
    async with peer(lambda _command: None) as one:
        wire = await Wire.open(one.address)
        wire.hurry(0.001)
        with pytest.raises(ServerUnreachable):
            await soon(wire.call("PING"))
        gone = weakref.ref(wire)
        del wire
        await until(lambda: gc.collect() is not None and gone() is None, "the connection to be forgotten")


async def test_a_server_that_takes_connections_and_never_answers_is_noticed() -> None:
    """A half-open connection: the other machine is gone and nobody said so. Silence while replies are due ends it."""
    async with peer(lambda _command: b"") as one, wire_to(one.address) as wire:
        wire.hurry(0.02)
        with pytest.raises(ServerUnreachable, match=r"no answer from the server for 0\.02 s"):
            await soon(wire.call("PING"))
        assert wire.lost


async def test_a_server_that_never_answers_the_greeting_is_noticed() -> None:
    """The same before the first command: opening must not wait for ever either."""
    async with peer(greets=b"") as one:
        with pytest.raises(ServerUnreachable, match="no answer"):
            await soon(Wire.open(one.address, silence=0.02))
        await soon(one.left.wait())


async def test_silence_without_anything_due_is_no_loss(server: Target) -> None:
    """An idle connection is quiet by right, for as long as it likes."""
    async with wire_to(server.address()) as wire:
        for _ in range(5):  # as if five times the limit had passed
            wire._watch.cancel()
            wire._look_for_silence()
        assert await soon(wire.call("ECHO", "still there")) == b"still there"


async def test_a_server_that_answers_slowly_is_not_taken_for_gone() -> None:
    """What counts is a byte since the last look, not how long the oldest waiter has waited."""
    async with peer() as one, wire_to(one.address) as wire:
        one.may_answer.clear()
        for n in range(5):
            waiter = wire.call("ECHO", str(n))
            await until(lambda n=n: len(one.heard) > n, "the command to arrive")  # type: ignore[misc]
            wire._watch.cancel()
            wire._look_for_silence()  # half the time has gone
            one.may_answer.set()
            assert await soon(waiter) == str(n).encode()
            one.may_answer.clear()
        assert not wire.lost


# --- a server that will not have us -----------------------------------------------------------------------


async def test_a_wrong_password_makes_the_server_unfit(server: Target) -> None:
    """No retry will make it right: it is the user's to change."""
    wrong = replace(server.address(), username="nobody-of-that-name", password="wrong")
    with pytest.raises(ServerUnfit, match="WRONGPASS"):
        await soon(Wire.open(wrong))


async def test_a_missing_password_makes_the_server_unfit() -> None:
    """The server refuses the first command after the connection."""
    async with peer(greets=b"-NOAUTH Authentication required.\r\n") as one:
        with pytest.raises(ServerUnfit, match="NOAUTH"):
            await soon(Wire.open(one.address))


async def test_a_database_that_does_not_exist_makes_the_server_unfit(server: Target) -> None:
    """As a cluster answers to any but 0."""
    with pytest.raises(ServerUnfit, match="DB index"):
        await soon(Wire.open(replace(server.address(), db=100_000)))


async def test_a_server_that_is_loading_its_data_may_be_asked_again() -> None:
    """It will be there soon; that is not the user's to change."""
    async with peer(greets=b"-LOADING Redis is loading the dataset in memory\r\n") as one:
        with pytest.raises(ServerUnreachable, match="LOADING"):
            await soon(Wire.open(one.address))


@pytest.mark.parametrize("first", [True, False], ids=["before it is asked", "when it is asked"])
async def test_a_server_with_too_many_clients_may_be_asked_again(first: bool) -> None:
    """It says so without being asked and hangs up: before or after the greeting has left, as it happens."""
    refusal = b"-ERR max number of clients reached\r\n"
    async with peer(says_first=refusal if first else b"", greets=None if first else refusal) as one:
        with pytest.raises(ServerUnreachable, match="max number of clients"):
            await soon(Wire.open(one.address))


async def test_an_answer_that_is_no_reply_fails_everyone_and_hangs_up() -> None:
    """Something else listens there. After one unreadable byte no reply is anybody's any more."""
    async with peer(lambda _command: b"HTTP/1.1 400 Bad Request\r\n\r\n") as one, wire_to(one.address) as wire:
        waiters = [wire.call("GET", "a"), wire.call("GET", "b")]
        for waiter in waiters:
            with pytest.raises(ServerUnreachable, match="cannot be read"):
                await soon(waiter)
        assert wire.lost
        await soon(one.left.wait())


async def test_a_reply_that_nobody_asked_for_is_given_to_nobody() -> None:
    """One reply too many, and from there on each caller would get his predecessor's."""
    async with peer(lambda command: echo(command) * 2) as one, wire_to(one.address) as wire:
        assert await soon(wire.call("ECHO", "mine")) == b"mine"
        with pytest.raises(ServerUnreachable, match="without being asked"):
            await soon(wire.call("ECHO", "yours"))


async def test_no_server_at_an_address_is_said_with_the_address(tmp_path: Path) -> None:
    """One line that says where nobody was."""
    with pytest.raises(ServerUnreachable, match=r"no server at .*nobody\.sock"):
        await Wire.open(Address(path=str(tmp_path / "nobody.sock")))
