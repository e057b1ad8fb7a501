"""One role as a process: `evalbus planner|worker|scorer`, and what `evalbus run` starts many of.

It serves until it is told to stop. SIGTERM and SIGINT hand back at once what it holds; with `batch`, it ends when that
batch has. This module is what a fleet starts over and over, so it imports nothing that a role does not need.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import structlog

from bus.connection import Endpoint, check_fit
from bus.errors import EvalbusError
from bus.home import home_directory
from bus.port import Group
from bus.redis_bus import RedisBus
from bus.types import BatchId, ConsumerId
from workers import logs, nursery_client
from workers.catalogue import Catalogue
from workers.consumer import Consumer
from workers.planner import Planner
from workers.role_options import STOPPED, Role, RoleOptions
from workers.runtime import SystemRuntime
from workers.scorer import ScorerRole
from workers.strays import Strays
from workers.suite import Suite, load_suite
from workers.watchdog import watching
from workers.worker import Worker

__all__ = ["run_role"]

log = structlog.get_logger("evalbus.role")


class _Stoppable(Protocol):
    def stop(self) -> None: ...

    async def run(self) -> None: ...


def run_role(options: RoleOptions) -> bool:
    """Serve until stopped. True when the batch that was asked for has ended, False when a signal stopped it.

    Raises EvalbusError.
    """
    strays = Strays()
    try:
        # Before the event loop: a suite may loop while it is loaded, and only here a Ctrl-C gets through to it.
        suite = load_suite(Path(options.suite)) if options.suite else None
        return asyncio.run(_serve(options, suite))
    finally:
        nursery_client.close()
        strays.kill()


async def _serve(options: RoleOptions, suite: Suite | None) -> bool:
    runtime = SystemRuntime()
    name = ConsumerId(options.name or f"{options.role}-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}")
    home = home_directory(Path(options.home) if options.home else None)
    endpoint = await asyncio.to_thread(Endpoint.from_options, options.url, home)
    try:
        if options.check:
            await check_fit(endpoint.target)
        artifacts = options.artifacts or (None if options.url else str(home / "artifacts"))
        bus = RedisBus(
            endpoint, runtime, plane=options.plane, artifacts=Path(artifacts) if artifacts else None,
            lease=suite.lease if suite else 10.0,
        )  # fmt: skip
        try:
            catalogue = Catalogue(bus, suite, BatchId(options.batch) if options.batch else None)
            role = _build(options, bus, runtime, name, catalogue, home / "work" / name)
            await catalogue.open_batches()  # a copy of another state of the suite never counts as started
            return await _until_stopped(role, catalogue)
        finally:
            await bus.aclose()
    finally:
        await endpoint.aclose()


def _build(
    options: RoleOptions,
    bus: RedisBus,
    runtime: SystemRuntime,
    name: ConsumerId,
    catalogue: Catalogue,
    work: Path,
) -> _Stoppable:
    structlog.contextvars.bind_contextvars(consumer=name)
    if options.role is Role.PLANNER:
        return Planner(bus, runtime, name, catalogue)
    if options.role is Role.WORKER:
        worker = Worker(bus, runtime, name, work)
        return Consumer(bus, runtime, Group.WORKER, name, catalogue, worker, options.slots)
    scorer = ScorerRole(bus, runtime, name, work)
    return Consumer(bus, runtime, Group.SCORER, name, catalogue, scorer, options.slots)


async def _until_stopped(role: _Stoppable, catalogue: Catalogue) -> bool:
    told = asyncio.Event()

    def stop() -> None:
        told.set()
        role.stop()
        catalogue.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    log.info("role.started")
    with watching(role.patience) if isinstance(role, Consumer) else contextlib.nullcontext():
        await role.run()
    log.info("role.ended", stopped=told.is_set())
    return not told.is_set()


def main() -> None:
    """`python -m workers.role TITLE OPTIONS`: a fleet's process. The title is what `ps` and `pkill -f` find it by."""
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
