"""What is waited for before an answer counts, on each kind of server; that it is there after a kill stands in
`tests/test_sentinel.py` and `tests/test_server.py`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
import redis

from bus.connection import Endpoint
from bus.durability import LICENCES, Guarantee, guarantee_of
from bus.errors import ServerUnfit, ServerUnreachable
from bus.group_commit import GroupCommit
from bus.info import parse_info
from bus.link import Link
from bus.scripts import script
from bus.types import Durability, Plane
from bus.wire import Reply, Wire
from tests.batches import W1, Batch, FixedDoor
from tests.fleet import eventually
from tests.replicated import link_is_up
from tests.servers import Kind, Missing, RealServer, binary, running, wait_for
from tests.waiting import soon, until
from workers.runtime import SystemRuntime


def _guarantee(kind: Kind, wanted: Durability, settings: dict[str, str], *, watched: bool = False) -> Guarantee:
    if isinstance(missing := binary(kind), Missing):
        pytest.skip(missing.reason)

    async def ask(server: RealServer) -> Guarantee:
        wire = await Wire.open(server.target.address())
        try:
            facts = parse_info(await wire.call("INFO"))
            return await guarantee_of(wire, facts, wanted, watched=watched, ours=False)
        finally:
            wire.close()

    with running(kind, settings) as server:
        return asyncio.run(ask(server))


@pytest.mark.parametrize(
    ("kind", "settings", "expected"),
    [
        (Kind.VALKEY9, {"appendfsync": "always"}, Guarantee()),
        (Kind.REDIS8, {"appendfsync": "always"}, Guarantee()),
        (Kind.REDIS8, {"appendfsync": "everysec"}, Guarantee(disk=True)),
        (Kind.REDIS7, {"appendfsync": "always"}, Guarantee()),
    ],
    ids=["valkey-always", "redis8-always", "redis8-everysec", "redis7-always"],
)
def test_strict_waits_for_the_disk_as_the_server_can_tell(
    kind: Kind, settings: dict[str, str], expected: Guarantee
) -> None:
    """WAITAOF where it tells the truth, nothing where the answer itself comes after the disk."""
    assert _guarantee(kind, Durability.STRICT, settings) == expected


@pytest.mark.parametrize(
    ("kind", "settings", "problem"),
    [
        (Kind.VALKEY9, {"appendfsync": "everysec"}, "its appendfsync is everysec"),
        (Kind.REDIS7, {"appendfsync": "everysec"}, "its appendfsync is everysec"),
        (Kind.VALKEY9, {"appendonly": "no"}, "needs the append-only file"),
    ],
    ids=["valkey-everysec", "redis7-everysec", "no-file"],
)
def test_strict_refuses_a_server_that_cannot_keep_it(kind: Kind, settings: dict[str, str], problem: str) -> None:
    """Valkey's WAITAOF acknowledges before the disk has it; Redis 7.0 has none. A promise on that would be none."""
    with pytest.raises(ServerUnfit, match=problem):
        _guarantee(kind, Durability.STRICT, settings)


def test_relaxed_waits_for_nothing_and_standard_for_what_it_can() -> None:
    """Without a file there is nothing to wait for, and `standard` says so too."""
    assert _guarantee(Kind.VALKEY9, Durability.RELAXED, {"appendonly": "no"}) == Guarantee()
    assert _guarantee(Kind.VALKEY9, Durability.STANDARD, {}).seconds > 1
    assert _guarantee(Kind.VALKEY9, Durability.STANDARD, {"appendfsync": "always"}, watched=True) == Guarantee(
        replica=True, lone=True
    )
    with pytest.raises(ServerUnfit, match="durability standard needs the append-only file"):
        _guarantee(Kind.VALKEY9, Durability.STANDARD, {"appendonly": "no"})


@asynccontextmanager
async def _monitored(server: RealServer) -> AsyncIterator[list[str]]:
    """The names of the commands that clients send, as the server sees them."""
    seen: list[str] = []
    client = server.client()
    with client.monitor() as monitor:  # type: ignore[no-untyped-call]

        def listen() -> None:
            for said in monitor.listen():
                words = said["command"].split()
                if words[0] == "PING" and words[-1] == "enough":
                    return
                if said["client_type"] != "lua":
                    seen.append(words[0])

        task = asyncio.get_running_loop().run_in_executor(None, listen)
        yield seen
        with server.client() as other:
            other.execute_command("PING", "enough")
        await task
    client.close()


_SYNCS = {"appendfsync": "always", "repl-diskless-sync-delay": "0"}
"""Settings of a server that waits for its disk, and for no second replica before it answers the first."""


async def test_each_licence_is_confirmed_on_the_connection_that_asked_for_it() -> None:
    """WAIT follows the script of a lease and of nothing else; on another connection it would answer at once."""
    with running(Kind.VALKEY9, _SYNCS, tcp=True) as server:
        door = FixedDoor(server.target.address(), is_watched=True)
        with running(Kind.VALKEY9, {"replicaof": f"127.0.0.1 {server.target.port}"}, tcp=True) as replica:
            wait_for(lambda: link_is_up(replica), "the replica to follow")
            batch = await Batch.open(door.where, door=door, durability=Durability.STRICT)
            await batch.admit()
            entry = await batch.delivered(W1)
            async with _monitored(server) as seen:
                claimed = await batch.claimed(W1, entry)
                assert (await batch.bus.hole(claimed.ref, "solver_error", "it raised")).applied
            # A script's text travels with its first call on a connection.
            scripts_and_waits = [name.removesuffix("SHA") for name in seen if name in ("EVAL", "EVALSHA", "WAIT")]
            assert scripts_and_waits == ["EVAL", "WAIT", "EVAL"]
            await batch.aclose()


async def test_no_lease_is_handed_out_that_no_replica_has() -> None:
    """The replica is gone: the claim has been applied, and is not answered until a replica has it."""
    with running(Kind.VALKEY9, _SYNCS, tcp=True) as server:
        door = FixedDoor(server.target.address(), is_watched=True)
        batch = await Batch.open(door.where, door=door, durability=Durability.STRICT)
        await batch.admit()
        entry = await batch.delivered(W1)
        claim = asyncio.ensure_future(batch.claimed(W1, entry))
        await eventually(lambda: _is_running(batch, entry.run), "the claim to be applied")
        assert not claim.done()
        with running(Kind.VALKEY9, {"replicaof": f"127.0.0.1 {server.target.port}"}, tcp=True):
            claimed = await claim
        assert claimed.ref.run == entry.run
        await batch.aclose()


async def _is_running(batch: Batch, run: str) -> bool:
    state = await batch.wire.call("HGET", batch.keys.run(run), "state")  # type: ignore[arg-type]
    return bool(state == b"running")


@pytest.mark.parametrize("wanted", [Durability.RELAXED, Durability.STANDARD, Durability.STRICT])
async def test_our_own_server_is_made_to_sync_and_left_as_it_was(tmp_path: Path, wanted: Durability) -> None:
    """A private server syncs every second: a close does not wait for that second, and changes nothing for others."""
    home = tmp_path / "h"
    endpoint = await asyncio.to_thread(Endpoint.from_options, None, home)
    try:
        link = Link(endpoint, SystemRuntime(), durability=wanted, mark="evb:{live.0}:mark")
        await link.command("SET", "evb:{live.0}:x", "1")
        await link.confirm()
        assert await link.command("CONFIG", "GET", "appendfsync") == [b"appendfsync", b"everysec"]
        written = (await link.command("EXISTS", "evb:{live.0}:mark")) == 1
        assert written == (wanted is not Durability.RELAXED)
        link.close()
    finally:
        await endpoint.aclose()


class _Held:
    """A connection that sends its first commands when it may."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.comes, self.may = asyncio.Event(), asyncio.Event()

    async def call(self, *command: str | bytes | int) -> Reply:
        """See Wire."""
        return await self._wire.call(*command)

    async def calls(self, commands: Sequence[Sequence[str | bytes | int]]) -> list[Reply]:
        """See Wire."""
        self.comes.set()
        await self.may.wait()
        return await self._wire.calls(commands)


async def test_two_who_confirm_at_once_leave_our_own_server_as_it_was() -> None:
    """One found it as the other had set it for a moment, and left it so: each script waited for the disk for good."""
    with running(Kind.VALKEY9, {"appendfsync": "everysec"}) as server, server.client() as other:
        wire = await Wire.open(server.target.address())
        held = _Held(wire)
        other.config_set("appendfsync", "always")
        confirming = asyncio.ensure_future(Guarantee(now=True).confirm(cast("Wire", held), "mark"))
        await soon(held.comes.wait())
        other.config_set("appendfsync", "everysec")
        held.may.set()
        await soon(confirming)
        assert other.config_get("appendfsync") == {"appendfsync": "everysec"}
        wire.close()


class _Told:
    """A connection to a server that another process tells to sync each second as before, so often at once with us."""

    def __init__(self, times: int) -> None:
        self.left, self.synced = times, 0

    async def call(self, *_: str) -> Reply:
        """CONFIG GET appendfsync."""
        self.left -= 1
        return [b"appendfsync", b"always" if self.left < 0 else b"everysec"]

    async def calls(self, commands: Sequence[Sequence[str | int]]) -> list[Reply]:
        """CONFIG SET appendfsync."""
        self.synced += "always" in commands[0]
        return [b"OK" for _ in commands]


async def test_a_sync_that_another_process_has_called_off_is_asked_for_again() -> None:
    """A server syncs when it has run all that came at once: ours, and behind it the other's word to sync no more."""
    told = _Told(2)
    await Guarantee(now=True).confirm(cast("Wire", told), "mark")
    assert told.synced == 3


async def test_who_may_only_read_shows_what_others_confirmed() -> None:
    """A reader cannot write the mark, and need not: it is not the one that closed the batch."""
    with running(Kind.VALKEY9, {"appendfsync": "always"}) as server:
        batch = await Batch.open(server.target.address(), durability=Durability.STANDARD)
        with server.client() as client:
            client.execute_command("ACL", "SETUSER", "default", "-set")
        await batch.bus.confirm(batch.name)
        with pytest.raises(redis.exceptions.NoPermissionError), server.client() as client:
            client.set(f"evb:{{{Plane.LIVE}.0}}:mark", 1)
        await batch.aclose()


async def test_a_confirmation_that_does_not_come_is_no_confirmation(monkeypatch: pytest.MonkeyPatch) -> None:
    """0 replicas after the time is an error, not an answer, except where the set is alone and only a close waits."""
    monkeypatch.setattr("bus.durability._PATIENCE_MS", 200)
    with running(Kind.VALKEY9, tcp=True) as server:
        wire = await Wire.open(server.target.address())
        await wire.call("SET", "k", 1)
        with pytest.raises(ServerUnreachable, match="no replica followed"):
            await Guarantee(replica=True).confirm(wire, "k")
        await Guarantee(replica=True, lone=True).confirm(wire, "k")
        wire.close()


async def test_who_asks_while_the_disk_is_waited_for_shares_the_next_wait() -> None:
    """The one that is under way began too early for them, and one for each would be a second for each."""
    begun: list[asyncio.Event] = []

    async def wait() -> None:
        begun.append(asyncio.Event())
        await begun[-1].wait()

    commit = GroupCommit(wait)
    first = asyncio.ensure_future(commit.confirmed())
    await until(lambda: len(begun) == 1, "the first wait")
    others = [asyncio.ensure_future(commit.confirmed()) for _ in range(50)]
    begun[0].set()
    await soon(first)
    await until(lambda: len(begun) == 2, "the second wait")
    assert not any(one.done() for one in others)
    begun[1].set()
    await soon(asyncio.gather(*others))
    assert len(begun) == 2


async def test_a_wait_that_failed_fails_those_who_shared_it_and_nobody_after() -> None:
    """Nor does it matter that one of those who wanted it has gone meanwhile."""
    outcomes: list[Exception | None] = [ServerUnreachable("no replica"), None]
    may_end = asyncio.Event()

    async def wait() -> None:
        outcome = outcomes.pop(0)
        await may_end.wait()
        if outcome is not None:
            raise outcome

    commit = GroupCommit(wait)
    gone, stays = (asyncio.ensure_future(commit.confirmed()) for _ in range(2))
    await until(lambda: len(outcomes) == 1, "the wait")
    gone.cancel()
    may_end.set()
    with pytest.raises(ServerUnreachable):
        await soon(stays)
    await soon(commit.confirmed())
    assert not outcomes


def test_what_counts_as_a_licence_are_scripts() -> None:
    """A renamed script must not lose its confirmation unseen."""
    names: Sequence[str] = sorted(LICENCES)
    assert [script(name).name for name in names] == list(names)
