"""A reply that was lost: the same command goes out again, and has happened once.

The proxy between the bus and a real server cuts before a request has arrived (nothing happened), or after it was
applied (everything happened and nobody knows). The caller cannot tell the two apart, and must not need to.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from bus.chain import EMPTY_HEAD
from bus.errors import ReplyError, ServerUnfit, ServerUnreachable
from bus.info import parse_info
from bus.link import Link
from bus.port import Group, NextRuns
from bus.scripts import all_scripts, script
from bus.target import Target
from bus.types import Decision, LeaseId, Verb
from bus.wire import Address, Wire
from tests.batches import P1, W1, Batch, FixedDoor, refused
from tests.peer import peer
from tests.proxy import Loss, Proxy, proxy
from tests.servers import Kind, running
from tests.waiting import soon, until
from workers.runtime import SystemRuntime


@dataclass(slots=True)
class Lossy:
    """A batch whose bus talks through a proxy."""

    batch: Batch
    between: Proxy


@pytest.fixture
async def lossy(server: Target) -> AsyncIterator[Lossy]:
    """Its scripts are loaded before, so that the first call of each is the one that counts."""
    async with proxy(server.address()) as between:
        batch = await Batch.open(server.address(), runs=3, through=between.address)
        await batch.wire.calls([("SCRIPT", "LOAD", one.text) for one in all_scripts()])
        yield Lossy(batch, between)
        await batch.check()
        await batch.aclose()


@dataclass(slots=True)
class Knocked:
    """A door that counts who asked for the server."""

    where: Address
    knocks: int = 0
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    is_watched = False
    is_ours = False

    def address(self) -> Address:
        """Where it is."""
        return self.where

    async def ensure(self) -> bool:
        """Waits until the test lets it go on."""
        self.knocks += 1
        await self.opened.wait()
        return False


@contextlib.asynccontextmanager
async def link_to(address: Address, *, patience: float = 20.0, silence: float = 15.0) -> AsyncIterator[Link]:
    """A link, closed at the end."""
    link = Link(FixedDoor(address), SystemRuntime(), patience=patience, silence=silence)
    try:
        yield link
    finally:
        link.close()


# --- a lost reply -----------------------------------------------------------------------------------------

Step = Callable[[Batch], Awaitable[Callable[[], Awaitable[Decision]]]]
"""Brings a batch where a command can be sent, and returns its sending."""


async def admit(batch: Batch) -> Callable[[], Awaitable[Decision]]:
    """Three runs, in one command."""
    return lambda: batch.bus.admit(batch.name, NextRuns(0, batch.runs, [], P1, "candidate", "judge"))


async def claim(batch: Batch) -> Callable[[], Awaitable[Decision]]:
    """A delivered run."""
    await batch.admit()
    entry = await batch.delivered()
    return lambda: batch.bus.claim(entry, LeaseId("L"), W1)


async def append(batch: Batch) -> Callable[[], Awaitable[Decision]]:
    """Two events of a held run."""
    await batch.admit()
    held = await batch.claimed()
    return lambda: batch.bus.append(held.ref, EMPTY_HEAD, 1, ["one", "two"])


async def seal(batch: Batch) -> Callable[[], Awaitable[Decision]]:
    """A held run's answer."""
    await batch.admit()
    held = await batch.claimed()
    return lambda: batch.seal(held)


async def give_back(batch: Batch) -> Callable[[], Awaitable[Decision]]:
    """A held run, handed back."""
    await batch.admit()
    held = await batch.claimed()
    return lambda: batch.bus.give_back(held.ref)


async def hole(batch: Batch) -> Callable[[], Awaitable[Decision]]:
    """A held run, ended without an answer."""
    await batch.admit()
    held = await batch.claimed()
    return lambda: batch.bus.hole(held.ref, "solver_error", "boom")


async def score_claim(batch: Batch) -> Callable[[], Awaitable[Decision]]:
    """A sealed run."""
    await batch.admit()
    await batch.sealed()
    entry = await batch.delivered(W1, Group.SCORER)
    return lambda: batch.bus.score_claim(entry, LeaseId("S"), W1)


async def score(batch: Batch) -> Callable[[], Awaitable[Decision]]:
    """A judged run."""
    await batch.admit()
    await batch.sealed()
    scoring = await batch.scoring()
    return lambda: batch.bus.score(scoring.ref, scoring.judgement)


STEPS = [admit, claim, append, seal, give_back, hole, score_claim, score]
NAMES = {"give_back": "yield"}


def _script_of(step: Step) -> str:
    name = getattr(step, "__name__", "")
    return f"run.{NAMES.get(name, name)}"


def calling(name: str) -> str:
    """What a request that calls the script holds, and one that asks for it, or loads it, does not."""
    return f"EVALSHA\r\n$40\r\n{script(name).sha}"


@pytest.mark.parametrize("step", STEPS)
async def test_a_step_whose_reply_was_lost_is_sent_again_and_was_applied_once(lossy: Lossy, step: Step) -> None:
    """The server did it, the connection broke before it could say so. The second sending is known by its ids."""
    send = await step(lossy.batch)
    lossy.between.lose(Loss.REPLY, calling(_script_of(step)))
    decision = await soon(send())
    assert lossy.between.requests == 2
    assert decision.verb is Verb.DUPLICATE
    assert await lossy.batch.commits(_script_of(step)) == 1


@pytest.mark.parametrize("step", STEPS)
async def test_a_step_whose_request_was_lost_is_sent_again_and_applied(lossy: Lossy, step: Step) -> None:
    """The server never heard of it. For the caller it looks the same as a lost reply."""
    send = await step(lossy.batch)
    lossy.between.lose(Loss.REQUEST, calling(_script_of(step)))
    decision = await soon(send())
    assert lossy.between.requests == 2
    assert decision.verb is Verb.COMMIT
    assert await lossy.batch.commits(_script_of(step)) == 1


@pytest.mark.parametrize("step", STEPS)
async def test_a_duplicate_carries_the_first_answer(lossy: Lossy, step: Step) -> None:
    """Who lost the reply gets what was in it: a generation, a head, a cursor. Nothing has to be asked for again."""
    send = await step(lossy.batch)
    first = await soon(send())
    again = await soon(send())
    assert (first.verb, again.verb) == (Verb.COMMIT, Verb.DUPLICATE)
    for name, value in again.answer.items():
        assert first.answer[name] == value


async def test_a_seal_whose_reply_was_lost_is_known_again_after_its_score(lossy: Lossy) -> None:
    """While the worker reconnects, a scorer has signed. The late copy is still of the seal that was applied."""
    batch = lossy.batch
    await batch.admit()
    held = await batch.claimed()
    await batch.seal(held)
    scoring = await batch.scoring()
    await batch.bus.score(scoring.ref, scoring.judgement)
    again = await batch.seal(held)
    assert again.verb is Verb.DUPLICATE
    assert await batch.refusals() == {}


async def test_a_hand_back_whose_reply_was_lost_is_known_again_after_the_next_one(lossy: Lossy) -> None:
    """Two workers were told to stop, one after the other; the first one's late copy ends nobody else's lease."""
    batch = lossy.batch
    await batch.admit(1)
    first = await batch.claimed()
    await batch.bus.give_back(first.ref)
    second = await batch.claimed()
    await batch.bus.give_back(second.ref)
    third = await batch.claimed()
    async with batch.unchanged():
        assert (await batch.bus.give_back(first.ref)).verb is Verb.DUPLICATE
    assert (await batch.seal(third)).verb is Verb.COMMIT


async def test_calls_in_flight_beside_the_lost_one_are_all_sent_again(lossy: Lossy) -> None:
    """One write, three claims, one cut: each of the three finds itself again, none of them twice."""
    batch = lossy.batch
    await batch.admit()
    entries = [await batch.delivered() for _ in range(3)]
    lossy.between.lose(Loss.REPLY, calling("run.claim"))
    leases = [LeaseId(f"L{n}") for n in range(3)]
    sent = [batch.bus.claim(entry, lease, W1) for entry, lease in zip(entries, leases, strict=True)]
    decisions = await soon(asyncio.gather(*sent))
    assert [decision.answer["gen"] for decision in decisions] == [1, 1, 1]
    assert await batch.commits("run.claim") == 3


async def test_a_half_open_connection_is_given_up_and_the_step_sent_again(server: Target) -> None:
    """The request is applied, and then nothing passes any more: nobody hangs up, so silence must be enough."""
    batch = await Batch.open(server.address())
    async with proxy(server.address()) as between, link_to(between.address, silence=0.05) as link:
        between.lose(Loss.SILENCE, "INCR")
        await batch.wire.call("DEL", "evb:test")
        # Not one of ours: it has no identity. Twice is enough; a slow machine may be silent once more.
        assert await soon(link.command("INCR", "evb:test")) >= 2
        assert between.requests >= 2
        assert link.opened >= 2
    await batch.wire.call("DEL", "evb:test")
    await batch.aclose()


async def test_a_caller_that_is_cancelled_leaves_an_unknown_outcome_that_a_resend_settles(lossy: Lossy) -> None:
    """Its command is on its way when the task is cancelled. Sent again under the same ids it is found to be applied."""
    batch = lossy.batch
    send = await seal(batch)
    lossy.between.lose(Loss.DELAY, calling("run.seal"))
    task = asyncio.ensure_future(send())
    await soon(lossy.between.struck.wait())
    task.cancel()
    lossy.between.resume.set()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await until(lambda: lossy.between.requests == 1, "the command to have passed")
    assert (await soon(send())).verb is Verb.DUPLICATE
    assert await batch.commits("run.seal") == 1


# --- scripts that are gone --------------------------------------------------------------------------------


async def test_scripts_flushed_in_the_middle_of_a_run_are_loaded_again(lossy: Lossy) -> None:
    """A restart or a promotion empties the cache too. No caller sees it, and no step is applied twice."""
    batch = lossy.batch
    await batch.admit()
    for step in (batch.sealed, batch.scoring):
        await batch.wire.call("SCRIPT", "FLUSH")
        await step()
    await batch.wire.call("SCRIPT", "FLUSH")
    await batch.sealed()
    for command, times in {"run.admit": 1, "run.claim": 2, "run.seal": 2, "run.score_claim": 1}.items():
        assert len(await batch.history(command)) == times


async def test_scripts_flushed_all_the_time_are_still_called(server: Target) -> None:
    """Flushed again between its loading and its call: that is answered NOSCRIPT too, and only means not now."""
    batch = await Batch.open(server.address(), runs=40)
    stop = asyncio.Event()

    async def flush() -> None:
        while not stop.is_set():
            await batch.wire.call("SCRIPT", "FLUSH")

    flushing = asyncio.create_task(flush())
    await batch.admit()
    held = await soon(asyncio.gather(*(batch.claimed() for _ in range(40))))
    decisions = await soon(asyncio.gather(*map(batch.seal, held)))
    stop.set()
    await flushing
    assert {decision.verb for decision in decisions} == {Verb.COMMIT}
    await batch.check()
    await batch.aclose()


async def test_scripts_flushed_between_their_loading_and_their_call_are_loaded_once_more() -> None:
    """The server's word is the same as before: not here. It means not now, however often it comes."""
    missing = b"-NOSCRIPT No matching script.\r\n"
    called = iter([missing, missing, missing, b"*3\r\n+commit\r\n+\r\n+run.test\r\n"])

    def answer(command: list[bytes]) -> bytes:
        return {b"INFO": b"$0\r\n\r\n", b"SCRIPT": b"+loaded\r\n"}.get(command[0]) or next(called)

    async with peer(answer) as one, link_to(one.address) as link:
        target = script("transcript.resume")
        decision = await soon(link.run(target, dict.fromkeys(target.keys, "k"), {"envelope": b""}))
    assert decision.verb is Verb.COMMIT
    assert next(called, None) is None
    sent = [command[0] for command in one.heard if command[0] != b"INFO"]
    with_text = [b"SCRIPT", b"EVALSHA"]
    assert sent == [*with_text, *with_text, b"EVALSHA", *with_text], "with the first call, and where it was missing"


async def unknown_scripts(link: Link) -> str:
    """How often the server was asked for a script that it does not know, in its own words."""
    return parse_info(await link.command("INFO", "errorstats")).get("errorstat_NOSCRIPT", "count=0")


async def test_a_script_comes_with_its_first_call_on_a_connection(server: Target) -> None:
    """In the same write, before it: a server that starts knows no script, and no call is sent twice for that.

    Were it asked for and sent again, the calls after it would overtake it: a heartbeat would come behind its run's end.
    """
    async with link_to(server.address()) as link:
        wire = await link.wire()
        await wire.call("SCRIPT", "FLUSH")
        target = script("transcript.resume")
        keys = {name: f"evb:{{live.0}}:test:{name}" for name in target.keys}
        before = await unknown_scripts(link)
        calls = [link.run(target, keys, {"envelope": b""}) for _ in range(3)]
        decisions = await soon(asyncio.gather(*calls))
        assert [decision.verb for decision in decisions] == [Verb.REJECT] * 3
        assert wire.loads[target.sha] == 1
        assert await unknown_scripts(link) == before


# --- a server that comes and goes -------------------------------------------------------------------------


async def test_a_server_restarted_on_its_data_is_connected_to_again() -> None:
    """Killed in the middle of a run: the next step finds everything there but the lease, which may have been lost.

    The run's entry is still pending for its holder, who claims it again under a newer generation, uncounted.
    """
    with running(Kind.VALKEY9, {"appendfsync": "always"}) as first:
        batch = await Batch.open(first.target.address())
        await batch.admit()
        held = await batch.claimed()
        first.process.kill()
        first.process.wait()
        sealing = asyncio.ensure_future(batch.seal(held))
        await until(lambda: batch.bus._link._failed is not None, "the link to find nobody there")
        with running(Kind.VALKEY9, directory=first.directory):
            assert refused(await soon(sealing)) == "reject stale_gen (transcript.append)"
            assert batch.bus.grace_until > SystemRuntime().now(), "idle times are void for a while"
            batch.wire = await Wire.open(first.target.address())
            again = await batch.claimed(entry=held.entry)
            assert again.ref.gen > held.ref.gen
            assert again.decision.answer["attempts"] == held.decision.answer["attempts"]
            assert (await batch.seal(again)).verb is Verb.COMMIT
            await batch.check()
            await batch.aclose()


async def test_nothing_is_taken_from_a_silent_consumer_while_idle_times_are_void(lossy: Lossy) -> None:
    """Entries aged while the connection was away and nobody could renew them. Their holders get a lease's time."""
    batch = lossy.batch
    await batch.admit()
    await batch.delivered()
    assert len(await batch.bus.take_idle(Group.WORKER, W1, [batch.name], 10, 0)) == 1
    lossy.between.cut()
    await soon(batch.bus.counters(batch.name))
    assert await batch.bus.take_idle(Group.WORKER, W1, [batch.name], 10, 0) == []


async def test_patience_runs_out_when_nobody_comes_back() -> None:
    """A role cannot wait for ever; it says that the server cannot be reached, and where it was."""
    async with link_to(Address(path="/nowhere/evalbus.sock"), patience=0.05) as link:
        with pytest.raises(ServerUnreachable, match=r"/nowhere/evalbus\.sock"):
            await soon(link.command("PING"))


async def test_patience_is_the_same_for_one_caller_and_for_fifty() -> None:
    """All fifty wait behind one attempt to connect; none of them stands in line to try it once more by itself."""
    door = Knocked(Address(path="/nowhere/evalbus.sock"))
    link = Link(door, SystemRuntime(), patience=0.0)
    calls = asyncio.gather(*(link.command("PING") for _ in range(50)), return_exceptions=True)
    await until(lambda: door.knocks, "the first to knock")
    door.opened.set()
    errors = await soon(calls)
    assert all(isinstance(error, ServerUnreachable) for error in errors)
    assert door.knocks <= 4  # the first round, and what patience of nothing allows each to try again, together


async def test_an_error_reply_that_will_not_pass_is_raised_at_once(server: Target) -> None:
    """A wrong type stays wrong: retried, it would hide a bug for a minute."""
    async with proxy(server.address()) as between, link_to(between.address) as link:
        await link.command("SET", "evb:test", "x")
        between.watch("LPUSH")
        with pytest.raises(ReplyError, match="WRONGTYPE"):
            await soon(link.command("LPUSH", "evb:test", "y"))
        assert between.requests == 1
        with pytest.raises(ReplyError, match="WRONGTYPE"):
            await soon(link.commands([("GET", "evb:test"), ("LPUSH", "evb:test", "y")]))
        assert await link.command("DEL", "evb:test") == 1


async def test_a_server_that_refuses_us_is_not_asked_again(server: Target) -> None:
    """The password was changed meanwhile: no patience helps."""
    refusing = Address(path=server.path, username="nobody-of-that-name", password="wrong")
    async with link_to(refusing) as link:
        with pytest.raises(ServerUnfit):
            await soon(link.command("PING"))
