"""A server that is killed between two operations, and started again on its append-only file, goes on where it stood.

State, pending entries with their owners, attempts, the history: with `appendfsync always` an answer that was given is
an answer that stands. The scripts are gone with every restart; a call that meets that loads its own.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Iterator

import pytest

from bus.contract import CONTRACT
from bus.target import Target
from bus.wire import Wire
from tests.batches import Batch
from tests.both import both
from tests.driver import random_config, random_op
from tests.servers import Kind, Missing, RealServer, binary, running, wait_for
from tests.walks import SPEC, Step, steps

RESTARTS = 8  # of a server on which every fence is played at once
BETWEEN = 3  # operations of each fence, at most, between two restarts


class Killed:
    """A server that can be killed, and comes back in the same place on what it had written."""

    def __init__(self, kind: Kind, stack: contextlib.ExitStack) -> None:
        self._kind = kind
        self._stack = stack
        self._server = self._start(None)

    @property
    def stride(self) -> int:
        """Every place between two steps on the server that is also the embedded one, some of them on the others."""
        return 1 if self._kind is Kind.VALKEY9 else 4

    @property
    def target(self) -> Target:
        """Where it listens, before and after."""
        return self._server.target

    def restart(self) -> None:
        """SIGKILL, then the same again on its data."""
        self._server.process.kill()
        self._server.process.wait()
        self._server = self._start(self._server)
        with self._server.client() as client:
            wait_for(lambda: client.info("persistence")["loading"] == 0, "its data")

    def _start(self, before: RealServer | None) -> RealServer:
        settings = {"appendfsync": "always"}
        directory = before.directory if before else None
        return self._stack.enter_context(running(self._kind, settings, directory=directory))


@pytest.fixture(params=list(Kind))
def killed(request: pytest.FixtureRequest) -> Iterator[Killed]:
    """One of each kind that is installed."""
    program = binary(request.param)
    if isinstance(program, Missing):
        pytest.skip(program.reason)
    with contextlib.ExitStack() as stack:
        yield Killed(request.param, stack)


async def restarted(server: Killed) -> None:
    """Restart it, and find everything that anybody could read as it was."""
    before = await picture_of(server.target)
    server.restart()
    assert await picture_of(server.target) == before


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
    rng = random.Random(1)
    async with contextlib.AsyncExitStack() as stack:
        pairs = [
            await stack.enter_async_context(both(killed.target, fence, random_config(rng, fence))) for fence in CONTRACT
        ]
        for _ in range(RESTARTS):
            for pair in pairs:
                for _ in range(rng.randint(1, BETWEEN)):
                    await pair.send(random_op(rng, pair.model, pair.sent))
            await restarted(killed)
            for pair in pairs:
                await pair.compare()
        for pair in pairs:
            for call in list(pair.sent):  # what was sent before the restarts is known after them
                await pair.send(call)
            await pair.compare()


async def test_a_batch_goes_on_after_a_restart_between_any_two_steps(killed: Killed) -> None:
    """One batch for every place between two steps, all restarted at once; those that nobody held go on to their end.

    A lease does not outlive the server that granted it: what becomes of a held run is another test's matter.
    """
    async with contextlib.AsyncExitStack() as stack:
        walks: list[tuple[Batch, AsyncIterator[Step]]] = []
        ended = False
        while not ended:
            name = f"b{len(walks)}"
            batch = await Batch.open(killed.target.address(), name=name, **SPEC)  # type: ignore[arg-type]
            stack.push_async_callback(batch.aclose)
            walk = steps(batch)
            for _ in range(len(walks) * killed.stride):
                step = await anext(walk, None)
                if step is None:
                    ended = True
                    break
                await step.send()
            walks.append((batch, walk))
        await restarted(killed)
        went_on = 0
        for batch, walk in walks:
            batch.wire.close()
            batch.wire = await Wire.open(killed.target.address())
            counters = await batch.bus.counters(batch.name)
            if counters.running == counters.scoring == 0:
                went_on += 1
                async for step in walk:
                    await step.send()
                assert (await batch.bus.counters(batch.name)).status == "closed"
        assert went_on > len(walks) // 4
