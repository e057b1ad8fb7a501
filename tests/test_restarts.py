"""A server that is killed between two operations, and started again on its append-only file, goes on where it stood.

State, pending entries with their owners, attempts, the history: with `appendfsync always` an answer that was given is
an answer that stands. The scripts are gone with every restart; a call that meets that loads its own.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Iterator

import pytest

from bus.connection import Endpoint
from bus.contract import CONTRACT
from bus.errors import ReplyError
from bus.link import Link
from bus.port import Group
from bus.target import Target
from bus.wire import Wire
from tests.batches import Batch
from tests.both import Both, both
from tests.driver import random_config, random_op
from tests.servers import Kind, Missing, RealServer, binary, running
from tests.walks import SPEC, steps
from workers.runtime import SystemRuntime

RESTARTS = 8  # of a server on which every fence is played at once
BETWEEN = 3  # operations of each fence, at most, between two restarts


class Killed:
    """A server that can be killed, and comes back in the same place on what it had written."""

    def __init__(self, kind: Kind, stack: contextlib.ExitStack) -> None:
        self._kind = kind
        self._stack = stack
        self._server = self._start(None)

    @property
    def target(self) -> Target:
        """Where it listens, before and after."""
        return self._server.target

    def restart(self) -> None:
        """SIGKILL, then the same again on its data."""
        self._server.process.kill()
        self._server.process.wait()
        self._server = self._start(self._server)

    def _start(self, before: RealServer | None) -> RealServer:
        settings = {"appendfsync": "always"}
        return self._stack.enter_context(running(self._kind, settings, directory=before and before.directory))


@pytest.fixture(params=list(Kind))
def killed(request: pytest.FixtureRequest) -> Iterator[Killed]:
    """One of each kind that is installed."""
    program = binary(request.param)
    if isinstance(program, Missing):
        pytest.skip(program.reason)
    with contextlib.ExitStack() as stack:
        yield Killed(request.param, stack)


@contextlib.asynccontextmanager
async def restarted(server: Killed) -> AsyncIterator[None]:
    """Around a restart: everything that anybody could read is as it was."""
    before = await picture_of(server.target)
    server.restart()
    assert await picture_of(server.target) == before
    yield


async def picture_of(target: Target) -> dict[str, object]:
    """All data: hashes, sets, lists, every stream's entries, and of each group where it stands and what is pending."""
    wire = await Wire.open(target.address())
    picture: dict[str, object] = {}
    reads = {b"hash": ("HGETALL",), b"set": ("SMEMBERS",), b"list": ("LRANGE", 0, -1), b"string": ("GET",)}
    for key in sorted(await wire.call("KEYS", "*")):
        kind = await wire.call("TYPE", key)
        name = key.decode()
        if kind in reads:
            command, *more = reads[kind]
            read = await wire.call(command, key, *more)
            picture[name] = sorted(zip(read[::2], read[1::2], strict=True)) if kind == b"hash" else sorted(read)
            continue
        picture[name] = await wire.call("XRANGE", key, "-", "+")
        for group in await wire.call("XINFO", "GROUPS", key):
            facts = dict(zip(group[::2], group[1::2], strict=True))
            pending = await wire.call("XPENDING", key, facts[b"name"], "-", "+", 1000)
            picture[f"{name} {facts[b'name'].decode()}"] = (
                facts[b"last-delivered-id"],
                [(entry, owner) for entry, owner, *_ in pending],
            )
    wire.close()
    return picture


async def test_every_fence_goes_on_after_each_restart_as_its_model_does(killed: Killed) -> None:
    """Random operations of all fences, restarts between them; then the same answers and states as without any."""
    rng = random.Random(killed.target.path is None)
    async with contextlib.AsyncExitStack() as stack:
        pairs: list[Both] = []
        for fence in CONTRACT:
            pairs.append(await stack.enter_async_context(both(killed.target, fence, random_config(rng, fence))))
        for _ in range(RESTARTS):
            for pair in pairs:
                for _ in range(rng.randint(1, BETWEEN)):
                    await pair.send(random_op(rng, pair.model, pair.sent))
            async with restarted(killed):
                for pair in pairs:
                    await pair.compare()
        for pair in pairs:
            for call in list(pair.sent):  # what was sent before the restarts is known after them
                await pair.send(call)
            await pair.compare()


async def test_a_batch_goes_on_after_a_restart_between_any_two_steps(killed: Killed) -> None:
    """Whoever held a run or a message holds it still, under the same token, at the same attempt."""
    batch = await Batch.open(killed.target.address(), **SPEC)  # type: ignore[arg-type]
    async for step in steps(batch):
        await step.send()
        async with restarted(killed):
            batch.wire.close()
            batch.wire = await Wire.open(killed.target.address())
    await batch.wire.call("DEL", *await batch.wire.call("KEYS", "*:swept:*"))
    await batch.check()
    await batch.aclose()
