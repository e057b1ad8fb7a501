"""All that a batch takes: a directory, a server, the network before it, a lab, and the processes.

Everything is our own and ends with us: processes and servers die with this one, and the directory is removed unless
something was found.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bus.cluster import ServerBus, open_bus
from bus.connection import Endpoint
from bus.failpoints import ENVIRONMENT
from bus.keys import shard_of, slot_of
from bus.port import BatchSpec
from bus.server import unix_url
from bus.types import BatchId, Durability, Plane
from bus.wire import Reply
from workers.batch_spec import spec_of
from workers.chaos.cluster_set import ClusterSet
from workers.chaos.faults import World
from workers.chaos.proxy import Proxy
from workers.chaos.server import Server, ask, clock_library
from workers.chaos.server_set import ServerSet
from workers.lab import Lab
from workers.processes.fleet import Fleet
from workers.processes.role_options import Role, RoleOptions
from workers.runtime import SystemRuntime
from workers.suite import Suite, load_suite

__all__ = ["LAB", "Lodging", "Stage", "lodging", "staged"]

LAB = "EVALBUS_LAB"
"""The environment variable by which a suite that wants the lab finds it: its URL."""

_MODEL: Mapping[str, str] = {
    "EVALBUS_MODEL_URL": "{}/v1",
    "EVALBUS_MODEL": "lab-1",
    "EVALBUS_JUDGE_URL": "{}/v1",
    "EVALBUS_JUDGE_MODEL": "lab-1",
}

_DELIVERIES = 1_000
"""Of a run. Chaos kills its workers: one that is given up after five of them would be an honest hole, and no answer."""


@dataclass(frozen=True, slots=True)
class Lodging:
    """What outlives a batch: the directory, the lab, and the suite that was loaded beside it."""

    root: Path
    lab: Lab
    suite: Suite
    source: Path
    """The suite, as the user named it."""
    uses_model: bool
    tools: frozenset[str]
    """The tools that lead to the lab."""
    plane: Plane = Plane.LIVE

    @property
    def uses_lab(self) -> bool:
        """Whether the suite talks to it."""
        return self.uses_model or bool(self.tools)


@contextlib.contextmanager
def lodging(source: Path, seed: int, plane: Plane) -> Iterator[Lodging]:
    """Raises InputError for a suite that cannot be used."""
    root = Path(tempfile.mkdtemp(prefix="evb-chaos-")).resolve()
    before = {name: os.environ.get(name) for name in (LAB, *_MODEL)}
    try:
        with Lab(seed=seed) as lab:
            # A suite reads them while it is loaded, here and in each process. What names no endpoint of its own asks
            # the lab, and spends nobody's tokens.
            os.environ.update({LAB: lab.url, **{name: value.format(lab.url) for name, value in _MODEL.items()}})
            suite = load_suite(source)
            judge = suite.judge_binding
            asked = [suite.target, None if judge is None else judge.target]
            urls = [target.base_url for target in asked if target is not None]
            uses_model = bool(urls) and all(url.startswith(lab.url) for url in urls)  # else its tokens are not all
            tools = frozenset(name for name, table in suite.tools.items() if (table.http or "").startswith(lab.url))
            yield Lodging(root, lab, suite, source.resolve(), uses_model, tools, plane)
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        shutil.rmtree(root, ignore_errors=True)


@dataclass(slots=True)
class Stage:
    """See the module's text. One of `server` and `servers` is there, and `proxy` with `server`."""

    lodging: Lodging
    world: World
    directory: Path
    url: str
    """How the processes reach the server."""
    bus: ServerBus
    """Our own look at it."""
    server: Server | None = None
    proxy: Proxy | None = None
    servers: ServerSet | ClusterSet | None = None
    fleet: Fleet = field(init=False)

    def __post_init__(self) -> None:
        """The place where orders are put."""
        self.orders.mkdir()
        self.fleet = self._new_fleet(BatchId("none"))

    @property
    def orders(self) -> Path:
        """Where `bus.failpoints` looks for orders."""
        return self.directory / "orders"

    @property
    def pids(self) -> set[int]:
        """The processes that somebody here waits for."""
        servers = [] if self.server is None else [self.server.process]
        servers += [] if self.servers is None else self.servers.processes
        return self.fleet.pids | {one.process.pid for one in servers if one.process is not None}

    async def ask(self, *command: str | bytes | int) -> Reply:
        """One command to the server that has the batch, nothing between. Raises ServerUnreachable, ReplyError."""
        target = self.server.target if self.server is not None else None
        if self.servers is not None:
            target = self.servers.primary.target
        assert target is not None
        return await ask(target, *command)

    def spec(self, name: BatchId) -> BatchSpec:
        """What a batch of the suite declares here."""
        suite = self.lodging.suite.model_copy(update={"max_deliveries": _DELIVERIES})
        return spec_of(suite, name, plane=self.lodging.plane)

    def start(self, name: BatchId, workers: int, scorers: int) -> None:
        """Start the processes of a batch."""
        self.fleet = self._new_fleet(name)
        counts: Mapping[Role, int] = {Role.PLANNER: 1, Role.WORKER: workers, Role.SCORER: scorers}
        self.fleet.start(
            [
                RoleOptions(
                    role=role, url=self.url, home=str(self.directory), suite=str(self.lodging.source), batch=name,
                    name=f"{role}-{number}", artifacts=str(self.directory / "artifacts"), check=False,
                    durability=Durability.STANDARD, plane=self.lodging.plane,
                )
                for role, count in counts.items()
                for number in range(1, count + 1)
            ]
        )  # fmt: skip

    def _new_fleet(self, name: BatchId) -> Fleet:
        return Fleet(self.directory / "logs" / name, {ENVIRONMENT: str(self.orders)})


@contextlib.asynccontextmanager
async def staged(lodging: Lodging, world: World, number: int, name: BatchId) -> AsyncIterator[Stage]:
    """A stage of its own for one batch, `number` and `name`: a world that one left broken is nobody else's."""
    directory = lodging.root / str(number)
    directory.mkdir()
    async with contextlib.AsyncExitStack() as stack:
        servers = _set_of(lodging, world, directory, name)
        if servers is not None:
            stack.push_async_callback(servers.stop)
            await servers.start()
            url, direct = servers.url, servers.url
            server, proxy = None, None
        else:
            server = Server.of(directory / "data", clock_library() if world is World.FORGETFUL else None)
            stack.push_async_callback(server.process.kill)
            await server.process.start()
            proxy = Proxy(directory / "p", Path(str(server.target.path)))
            stack.push_async_callback(proxy.stop)
            await proxy.start()
            url, direct = unix_url(proxy.path), server.target.url
        endpoint = Endpoint.from_options(direct, None)
        bus = open_bus(
            endpoint, SystemRuntime(), plane=lodging.plane, lease=lodging.suite.lease, durability=Durability.STANDARD
        )
        stack.push_async_callback(bus.aclose)
        yield Stage(lodging, world, directory, url, bus, server, proxy, servers)


def _set_of(lodging: Lodging, world: World, directory: Path, name: BatchId) -> ServerSet | ClusterSet | None:
    """The servers of a world that has several."""
    match world:
        case World.REPLICATED:
            return ServerSet.of(directory)
        case World.CLUSTER:
            return ClusterSet.of(directory, slot_of(lodging.plane, shard_of(name)))
        case World.SURE | World.FORGETFUL:
            return None
