"""One role as a process: `evalbus planner|worker|scorer`, and what `evalbus run` starts many of.

It serves until it is told to stop. SIGTERM and SIGINT hand back at once what it holds; with `batch`, it ends when that
batch has. This module is what a fleet starts over and over, so it imports nothing that a role does not need.
"""

from __future__ import annotations

from workers.processes import starting  # isort: skip - before everything else

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import structlog

from bus.artifacts import artifacts_for
from bus.cluster import ServerBus, open_bus
from bus.connection import Endpoint, check_fit
from bus.errors import EvalbusError, InputError
from bus.home import home_directory
from bus.port import BatchInfo, Group
from bus.rights import ARCHIVING, COMMANDS
from bus.types import BatchId, ConsumerId
from workers.bundle import BundleKey, fetch, take_key
from workers.catalogue import Catalogue
from workers.consumer import Consumer
from workers.naming import checked_name, made_up_name, this_machine
from workers.observing.starting import Observing, observing
from workers.planner import Planner
from workers.processes import logs, nursery_client
from workers.processes.breaker import Told
from workers.processes.leftovers import clear_leftovers
from workers.processes.loop_teller import teller
from workers.processes.machine import Disks
from workers.processes.rests import telling
from workers.processes.role_options import STOPPED, Role, RoleOptions
from workers.processes.strays import Strays
from workers.processes.watchdog import Tell, watching
from workers.redaction import hide_access
from workers.runtime import SystemRuntime
from workers.scorer import ScorerRole
from workers.suite import Suite, load_suite
from workers.tools.serving import JointConsumer, Toolroom
from workers.worker import Worker

__all__ = ["run_role"]

starting.loaded()

log = structlog.get_logger("evalbus.role")


class _Stoppable(Protocol):
    def stop(self) -> None: ...

    async def run(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Built:
    """A role, and what it talks to its server through."""

    role: _Stoppable
    buses: Sequence[ServerBus]


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a role is built of."""

    options: RoleOptions
    bus: ServerBus
    open_another: Callable[[], ServerBus]
    """For what is done beside the runs."""
    runtime: SystemRuntime
    name: ConsumerId
    catalogue: Catalogue
    work: Path
    watched: Observing


def run_role(options: RoleOptions) -> bool:
    """Serve until stopped. True when the batch that was asked for has ended, False when a signal stopped it.

    Raises EvalbusError.
    """
    strays, key = Strays(), take_key()
    hide_access(options.url)
    try:
        tempfile.gettempdir()  # looked for now: on a disk that is full by then there is none, as if none had ever been
    except FileNotFoundError:  # it is full already: the role rests until there is room
        tempfile.tempdir = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - the usual one
    if options.fetch_suite and options.suite:
        raise InputError("--suite and --fetch-suite are two answers to one question", remedy="give one of them")
    try:
        # Before the event loop: a suite may loop while it is loaded, and only here a Ctrl-C gets through to it.
        suite = load_suite(Path(options.suite)) if options.suite else None
        return asyncio.run(_serve(options, suite, key))
    finally:
        nursery_client.close()
        strays.kill()


async def _serve(options: RoleOptions, suite: Suite | None, key: BundleKey | None) -> bool:
    runtime = SystemRuntime()
    name = checked_name(options.name) if options.name else made_up_name(options.role)
    home = home_directory(Path(options.home) if options.home else None)
    endpoint = await asyncio.to_thread(Endpoint.from_options, options.url, home)
    watched = observing(options, name)
    try:
        if options.check:
            rights = COMMANDS if options.archive is None else (*COMMANDS, *ARCHIVING)
            await check_fit(endpoint.target, plane=options.plane, commands=rights)
        lease = suite.lease if suite else 10.0
        connect = partial(open_bus, endpoint, runtime, plane=options.plane, lease=lease, durability=options.durability)
        bus = connect(artifacts=artifacts_for(options.artifacts, options.url, home))
        try:
            seen = watched.seen(bus)
            catalogue = Catalogue(seen, suite, BatchId(options.batch) if options.batch else None)
            if options.fetch_suite:
                catalogue.fetch = _fetcher(bus, key, home / "suites")
            structlog.contextvars.bind_contextvars(consumer=name)
            parts = _Parts(
                options, seen, lambda: watched.seen(connect()), runtime, name, catalogue, home / "work" / name, watched
            )
            async with _BUILDERS[options.role](parts) as built:
                await catalogue.open_batches()  # a copy of another state of the suite never counts as started
                with watched.polling(bus, options):
                    return await _until_stopped(built, catalogue, teller(endpoint, options.plane), name)
        finally:
            await bus.aclose()
    finally:
        watched.close()
        await endpoint.aclose()


def _fetcher(bus: ServerBus, key: BundleKey | None, suites: Path) -> Callable[[BatchInfo], Awaitable[Path]]:
    async def fetched(info: BatchInfo) -> Path:
        return await fetch(bus, info.spec.batch, info.spec.suite_digest, key, suites)

    return fetched


@contextlib.asynccontextmanager
async def _planner(parts: _Parts) -> AsyncIterator[_Built]:
    bus = parts.bus
    planner = Planner(bus, parts.runtime, parts.name, parts.catalogue, bus.opened)
    yield _Built(planner if parts.options.archive is None else _with_archivist(planner, bus, parts.options), [bus])


@contextlib.asynccontextmanager
async def _scorer(parts: _Parts) -> AsyncIterator[_Built]:
    bus, runtime, name = parts.bus, parts.runtime, parts.name
    told, disks = await _begun(parts), Disks([parts.work.parent])
    scorer = ScorerRole(bus, runtime, name, parts.work, bus.limits_of, disks, this_machine())
    consumer = Consumer(
        bus, runtime, Group.SCORER, name, parts.catalogue, scorer, parts.options.slots, opened=bus.opened,
        disks=disks, told=told,
    )  # fmt: skip
    try:
        yield _Built(consumer, [bus])
    finally:
        await scorer.aclose()


@contextlib.asynccontextmanager
async def _worker(parts: _Parts) -> AsyncIterator[_Built]:
    bus, runtime, name = parts.bus, parts.runtime, parts.name
    told, disks = await _begun(parts), Disks([parts.work.parent])
    room, beside = Toolroom(), parts.open_another()
    worker = Worker(bus, runtime, name, parts.work, bus.limits_of, room.tools_of(bus, runtime), disks, this_machine())
    runs = Consumer(
        bus, runtime, Group.WORKER, name, parts.catalogue, worker, parts.options.slots, quarantine=room.quarantine,
        opened=bus.opened, disks=disks, told=told,
    )  # fmt: skip
    tools = room.consumer(beside, runtime, name, parts.catalogue, telling(bus, ConsumerId(f"{name} (tools)")))
    try:
        yield _Built(JointConsumer([runs, tools]), [bus, beside])
    finally:
        await worker.aclose()
        await room.aclose()
        await beside.aclose()


_BUILDERS: Final = {Role.PLANNER: _planner, Role.SCORER: _scorer, Role.WORKER: _worker}


async def _begun(parts: _Parts) -> Told:
    """What an earlier one of this name left is gone. How it tells that it rests; a planner never does, nor may it."""
    told = telling(parts.bus, parts.name, parts.watched.rests)
    await told(None)  # whoever had this name may have died at rest
    clear_leftovers(parts.work.parent, parts.name)
    return told


def _with_archivist(planner: Planner, bus: ServerBus, options: RoleOptions) -> _Stoppable:
    # Most planners have none, and a process is to be up soon.
    from workers.histories.archive_place import SEGMENT, check_archive  # noqa: PLC0415
    from workers.histories.archivist import Archivist  # noqa: PLC0415
    from workers.histories.following import Beside, Following  # noqa: PLC0415

    archivist = Archivist(bus, check_archive(Path(str(options.archive))), options.segment or SEGMENT)
    following = Following(bus, archivist, BatchId(options.batch) if options.batch else None)
    planner.held_up = following.is_behind
    return Beside(planner, following)


async def _until_stopped(built: _Built, catalogue: Catalogue, tell: Tell, name: ConsumerId) -> bool:
    told, role = asyncio.Event(), built.role

    def stop() -> None:
        told.set()
        role.stop()
        catalogue.stop()
        for bus in built.buses:
            bus.hurry()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    log.info("role.started")
    unwatched = contextlib.nullcontext()  # a planner runs no code of a suite's
    with watching(role.patience, role.lease, tell, name) if isinstance(role, Consumer | JointConsumer) else unwatched:
        await role.run()
    log.info("role.ended", stopped=told.is_set())
    return not told.is_set()


def main() -> None:
    """`python -m workers.role TITLE OPTIONS`: a fleet's process. The title is what `ps` and `pkill -f` find it by."""
    starting.quick_end()
    options = replace(RoleOptions.from_json(sys.argv[-1]), url=os.environ.get("EVALBUS_URL") or None)
    logs.configure(role=options.role.value)
    try:
        ended = run_role(options)
    except EvalbusError as error:
        print(f"evalbus {options.role}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    sys.exit(0 if ended else STOPPED)


if __name__ == "__main__":
    main()
