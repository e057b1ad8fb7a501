"""A generation never comes back, also when a server has really lost what it had answered.

    w1 claims a run            the server keeps this
    w2 takes it and claims     the server answers, and loses it: w1 was never fenced, as far as it knows

If the row alone decided, w1 would be the live holder again, and the next claim would be given the number that w2 has.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest

from bus.port import Group, Held
from bus.target import Target
from bus.types import ConsumerId, Verb
from bus.wire import Address, Wire
from tests.batches import Batch, opened, refused
from tests.batches import Held as Claimed
from tests.model_calls import LIMITS
from tests.servers import Kind, RealServer, running, wait_for

W1, W2, W3 = ConsumerId("w1"), ConsumerId("w2"), ConsumerId("w3")


@dataclass(slots=True)
class _MovingDoor:
    """The server's address, which a failover changes."""

    where: Address

    is_watched = False
    is_ours = False

    def address(self) -> Address:
        """Where it is now."""
        return self.where

    async def ensure(self) -> bool:
        """Not ours to start."""
        return False


@dataclass(slots=True)
class _World:
    """A batch, and what makes its server lose its last writes."""

    batch: Batch
    door: _MovingDoor
    remember: Callable[[], Awaitable[None]]
    """What was written until now survives; what comes after this does not."""
    lose: Callable[[], None]

    async def forget(self) -> None:
        """The server is back, without what it was told since."""
        self.lose()
        self.batch.wire.close()
        self.batch.wire = await Wire.open(self.door.where)


Loss = Callable[[], contextlib.AbstractAsyncContextManager[_World]]


@contextlib.asynccontextmanager
async def _restart() -> AsyncIterator[_World]:
    """A server without an append-only file, restarted on a snapshot that is older than its last answers."""
    with contextlib.ExitStack() as stack:
        lives = [stack.enter_context(running(Kind.VALKEY9, {"appendonly": "no"}))]
        door = _MovingDoor(lives[0].target.address())
        batch = await Batch.open(door.where, door=door)

        async def remember() -> None:
            await batch.wire.call("SAVE")

        def lose() -> None:
            lives[-1].process.kill()
            lives[-1].process.wait()
            lives.append(stack.enter_context(running(Kind.VALKEY9, {"appendonly": "no"}, directory=lives[0].directory)))

        yield _World(batch, door, remember, lose)
        await batch.aclose()


@contextlib.asynccontextmanager
async def _failover() -> AsyncIterator[_World]:
    """A replica that lagged behind is promoted when its primary dies."""
    with contextlib.ExitStack() as stack:
        primary = stack.enter_context(running(Kind.VALKEY9, tcp=True))
        replica = stack.enter_context(running(Kind.VALKEY9, tcp=True))
        with replica.client() as client:
            client.execute_command("REPLICAOF", str(primary.target.host), str(primary.target.port))
        wait_for(lambda: _link_is_up(replica), "the replica to follow")
        door = _MovingDoor(primary.target.address())
        batch = await Batch.open(door.where, door=door)

        async def remember() -> None:
            wait_for(lambda: _offset(primary) == _offset(replica), "the replica to have all of it")
            with replica.client() as client:
                client.execute_command("REPLICAOF", "NO", "ONE")  # it hears nothing any more: it lags for good

        def lose() -> None:
            primary.process.kill()
            primary.process.wait()
            door.where = replica.target.address()

        yield _World(batch, door, remember, lose)
        await batch.aclose()


def _offset(server: RealServer) -> int:
    with server.client() as client:
        facts = client.info("replication")
    return int(facts["master_repl_offset"] if facts["role"] == "master" else facts["slave_repl_offset"])


def _link_is_up(replica: RealServer) -> bool:
    with replica.client() as client:
        return str(client.info("replication").get("master_link_status")) == "up"


LOSSES = pytest.mark.parametrize("loss", [_restart, _failover])


async def _claimed_by(batch: Batch, claimed: Claimed, consumer: ConsumerId) -> Claimed:
    return await batch.claimed(consumer, await batch.taken(claimed.entry, consumer))


@LOSSES
async def test_a_fenced_holder_is_not_revived_by_a_loss(loss: Loss) -> None:
    """The row says that w1 holds the run, since the server forgot w2. What w1 sends is refused all the same."""
    async with loss() as world:
        batch = world.batch
        await batch.admit()
        old = await batch.claimed(W1)
        await world.remember()
        lost = await _claimed_by(batch, old, W2)
        assert lost.ref.gen > old.ref.gen
        await world.forget()

        assert (await batch.row(old.ref.run))["t.lease"] == old.ref.lease_id, "the loss is real"
        [beat] = await batch.bus.heartbeat(Group.WORKER, W1, Held([old.ref]))
        assert beat.reason == "stale_lease"
        assert refused(await batch.seal(old)) == "reject stale_gen (transcript.append)"
        assert refused(await batch.bus.give_back(old.ref)) == "reject stale_lease (run.yield)"
        assert refused(await batch.bus.hole(old.ref, "solver_error", "")) == "reject stale_lease (run.hole)"
        assert refused(await batch.seal(lost)) == "reject stale_gen (transcript.append)"


@LOSSES
async def test_a_new_lease_repeats_no_generation_that_was_lost(loss: Loss) -> None:
    """The server does not know that it gave w2 a number. The next claim's is larger all the same."""
    async with loss() as world:
        batch = world.batch
        await batch.admit()
        old = await batch.claimed(W1)
        await world.remember()
        given = [await _claimed_by(batch, old, consumer) for consumer in (W2, W3)]
        await world.forget()

        fresh = await _claimed_by(batch, old, W3)
        pairs = {(one.ref.lease_id, one.ref.gen) for one in (old, *given, fresh)}
        assert len(pairs) == 4
        assert fresh.ref.gen > max(one.ref.gen for one in (old, *given))
        assert (await batch.seal(fresh)).verb is Verb.COMMIT
        assert refused(await batch.seal(given[-1])) == "reject stale_gen (transcript.append)"


@LOSSES
async def test_a_fenced_scorer_is_not_revived_by_a_loss(loss: Loss) -> None:
    """The same for who signs: the old epoch is void, and the next one is larger than every lost one."""
    async with loss() as world:
        batch = world.batch
        await batch.admit()
        await batch.sealed()
        old = await batch.scoring(W1)
        await world.remember()
        lost = await batch.scoring(W2, await batch.taken(old.entry, W2))
        await world.forget()

        for late in (old, lost):
            assert refused(await batch.bus.score(late.ref, late.judgement)) == "reject stale_lease (run.score)"
        fresh = await batch.scoring(W3, await batch.taken(old.entry, W3))
        assert fresh.ref.gen > max(old.ref.gen, lost.ref.gen)
        assert (await batch.bus.score(fresh.ref, fresh.judgement)).verb is Verb.COMMIT


async def test_a_life_of_the_server_that_was_lost_itself_is_numbered_past() -> None:
    """Two restarts, and the second forgets that the first had raised the floor."""
    async with _restart() as world:
        batch = world.batch
        await batch.admit()
        old = await batch.claimed(W1)
        await world.remember()
        await world.forget()
        second = await _claimed_by(batch, old, W2)
        await world.forget()
        third = await _claimed_by(batch, old, W3)
        assert third.ref.gen > second.ref.gen > old.ref.gen
        assert refused(await batch.seal(second)) == "reject stale_gen (transcript.append)"


async def test_a_step_that_names_another_life_of_the_server_is_refused(server: Target) -> None:
    """It is recorded, and the tokens of that life are void: the holder claims its run again."""
    batch = await Batch.open(server.address())
    await batch.admit()
    held = await batch.claimed(W1)
    (await batch.bus.link.wire()).server = "another life"
    assert refused(await batch.seal(held)) == "reject stale_gen (transcript.append)"
    assert (await batch.refusals())["server_changed"] == 1
    again = await batch.claimed(W1, held.entry)
    assert again.decision.answer["attempts"] == held.decision.answer["attempts"]
    assert (await batch.seal(again)).verb is Verb.COMMIT
    await batch.check()
    await batch.aclose()


async def test_six_restarts_of_the_server_poison_no_run(server: Target) -> None:
    """Twice as many as a run may be delivered, under one holder and under one scorer: attempts are not counted.

    Fence 4's own budget is: "compute (each `lease` after the first)". It has room for twenty more than deliveries.
    """
    limits = {**LIMITS, "compute_retries": 3 + 20}
    async with opened(server.address(), runs=1, max_deliveries=3, limits=limits) as batch:
        await batch.admit()
        held = await batch.claimed(W1)
        for life in range(6):
            (await batch.bus.link.wire()).server = f"life {life} of a holder"
            assert not (await batch.seal(held)).applied
            held = await batch.claimed(W1, held.entry)
            assert held.decision.answer["attempts"] == 1
        assert (await batch.seal(held)).verb is Verb.COMMIT
        scoring = await batch.scoring(W2)
        for life in range(6):
            (await batch.bus.link.wire()).server = f"life {life} of a scorer"
            assert not (await batch.bus.score(scoring.ref, scoring.judgement)).applied
            scoring = await batch.scoring(W2, scoring.entry)
        assert (await batch.bus.score(scoring.ref, scoring.judgement)).verb is Verb.COMMIT
        assert (await batch.bus.counters(batch.name)).holes == 0
