"""The main job, `evalbus run`: create or resume a batch, run a fleet until it has closed, say what came of it.

Nothing of it is kept here. The batch is in the server; whoever runs the same command with the same batch name goes on
where it stands, and after the close is told the closed result and spends nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from bus.artifacts import artifacts_for, open_artifacts
from bus.cluster import ServerBus, open_bus
from bus.connection import Endpoint, check_fit
from bus.errors import InputError, ServerError
from bus.home import home_directory
from bus.port import BatchStatus
from bus.rights import ARCHIVING, COMMANDS
from bus.types import BatchId
from workers.batch_spec import specs_of
from workers.bundle import BundleKey, take_key
from workers.creating import created, fresh_name
from workers.files import check_writable, write_whole
from workers.histories.archive_place import check_archive
from workers.job_options import JobOptions, resume_with
from workers.naming import fleet_place, new_batch_name
from workers.news.news import News, sources_of
from workers.processes import nursery
from workers.processes.fleet import Fleet
from workers.processes.held_loops import with_held_loops
from workers.processes.interrupt import Interrupted
from workers.processes.role_options import Role, RoleOptions
from workers.processes.strays import Strays
from workers.redaction import hide_access
from workers.results.fetching import fetch_outcome
from workers.results.outcome import Outcome
from workers.results.progress import Progress
from workers.results.whole import Whole, counters_of
from workers.runtime import SystemRuntime
from workers.suite import Suite, load_suite
from workers.trees import ignored

__all__ = ["log_directory", "run_job"]

_LOOK_EVERY = 0.2  # seconds between two looks at the batch's counters
_SCORERS = 2


def log_directory(home: Path, batch: BatchId) -> Path:
    """Where the processes that a run starts for this batch have their logs."""
    return home / "logs" / batch


def run_job(options: JobOptions) -> Outcome:
    """Run a suite to its closed snapshot. Raises EvalbusError, Interrupted."""
    name = None if options.batch is None else new_batch_name(options.batch)
    if options.json_file is not None:
        check_writable(options.json_file)
    if options.artifacts is not None:
        open_artifacts(options.artifacts)
    key = take_key()  # before any code of the suite runs
    hide_access(options.url)
    # Before the event loop: a suite may loop while it is loaded, and only here a Ctrl-C gets through to it.
    suite = load_suite(options.suite)
    if options.cases:
        suite = suite.chosen(options.cases)
    elif options.limit is not None:
        suite = suite.first(options.limit)
    _check_environment(suite, asks=options.workers != 0, judges=options.scorers != 0)
    for written in (options.json_file, options.archive):
        if written is not None:
            _check_outside(suite, written)
    if options.archive is not None:
        check_archive(options.archive)
    if options.source is None:  # too many partitions are found out before a server is started, too
        specs_of(suite, name or BatchId(suite.name), options.plane)
    return asyncio.run(_run(options, suite, name, key))


def _check_environment(suite: Suite, *, asks: bool, judges: bool) -> None:
    """What a batch of this suite needs of the environment is found out before a server is started for it.

    Raises InputError. `asks`, `judges`: whether this command's own workers will ask the model, its scorers the judge's.
    """
    if asks and suite.target is not None and suite.model is not None:
        suite.model.key()
    if suite.judge_binding is not None and judges:
        suite.scorer.model.key()


def _check_outside(suite: Suite, written: Path) -> None:
    """A result must not change the suite that it is the result of: the batch could not be resumed."""
    real = written.resolve()
    if real.is_relative_to(suite.root) and not ignored(
        real.relative_to(suite.root).as_posix(), suite.place.not_counted
    ):
        raise InputError(
            "lies in the suite's directory and would be part of its digest",
            file=written,
            remedy="write it elsewhere, or put it on the suite's ignore list",
        )


async def _run(options: JobOptions, suite: Suite, name: BatchId | None, key: BundleKey | None) -> Outcome:
    home = home_directory(options.home)
    endpoint = await asyncio.to_thread(Endpoint.from_options, options.url, home)
    try:
        rights = COMMANDS if options.archive is None else (*COMMANDS, *ARCHIVING)
        facts = await check_fit(endpoint.target, plane=options.plane, commands=rights)
        for warning in facts.warnings:
            print(f"evalbus: warning: {warning}", file=sys.stderr)
        for notice in endpoint.embedded.notices() if endpoint.embedded else []:
            print(f"evalbus: {notice}", file=sys.stderr)
        bus = open_bus(
            endpoint, SystemRuntime(), plane=options.plane, lease=suite.lease, durability=options.durability,
            artifacts=artifacts_for(options.artifacts, options.url, home),
        )  # fmt: skip
        try:
            name = name or await fresh_name(bus, suite, options.source)
            outcome = await _run_batch(options, bus, suite, name, home, key)
        finally:
            await bus.aclose()
    finally:
        await endpoint.aclose()
    if options.json_file is not None:
        write_whole(options.json_file, json.dumps(outcome.as_json(), indent=1, ensure_ascii=False) + "\n")
    return outcome


async def _run_batch(
    options: JobOptions,
    bus: ServerBus,
    suite: Suite,
    name: BatchId,
    home: Path,
    key: BundleKey | None,
) -> Outcome:
    whole = await created(bus, suite, name, options, key)
    if whole.has_ended:
        return await fetch_outcome(bus, name)
    if options.archive is not None:
        from workers.histories.standing import check_goes_on, left_behind  # noqa: PLC0415 - most runs archive nothing

        await check_goes_on(bus, whole.parts, options.archive)
    strays = Strays()
    nursery.adopt_orphans()  # those of a worker that was killed, too
    logs = log_directory(home, name)
    fleet, news = Fleet(logs), News(sources_of(bus, whole, logs), asyncio.get_running_loop().time)
    fleet.start(_roles(options, name, home))
    with _on_signals() as told, Progress(_title(suite, name)) as progress:
        try:
            await _watch(bus, whole, fleet, strays, progress, told, news)
        except ServerError as error:
            raise ServerError(f"{error}; {resume_with(options, name)}") from error
        finally:
            await fleet.stop()
            strays.kill()
    if told.is_set() and not (await counters_of(bus, whole)).status.ended:
        raise Interrupted(f"interrupted; batch {name} is open; {resume_with(options, name)}")
    if options.archive is not None and (left := await left_behind(bus, whole.parts, options.segment)):
        print(f"evalbus: warning: {left} ({logs} says why)", file=sys.stderr)
    return with_held_loops(await fetch_outcome(bus, name), logs)


def _roles(options: JobOptions, name: BatchId, home: Path) -> list[RoleOptions]:
    place = fleet_place()

    def members(role: Role, count: int) -> list[RoleOptions]:
        return [
            RoleOptions(
                role=role,
                url=options.url,
                home=str(home),
                plane=options.plane,
                durability=options.durability,
                suite=str(options.suite.resolve()),
                batch=name,
                name=f"{role}-{place}-{number}",
                artifacts=options.artifacts,
                archive=str(options.archive.resolve()) if options.archive and role is Role.PLANNER else None,
                segment=options.segment,
                check=False,
            )
            for number in range(1, count + 1)
        ]

    return [
        *members(Role.PLANNER, 1),
        *members(Role.WORKER, _cores() if options.workers is None else options.workers),
        *members(Role.SCORER, _SCORERS if options.scorers is None else options.scorers),
    ]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _title(suite: Suite, name: BatchId) -> str:
    """A name that was made up begins with the suite's."""
    return name if name.startswith(suite.name) else f"{suite.name} · {name}"


async def _watch(
    bus: ServerBus,
    whole: Whole,
    fleet: Fleet,
    strays: Strays,
    progress: Progress,
    told: asyncio.Event,
    news: News,
) -> None:
    """Show the batch until it has ended, the user stops it, or a process says that it cannot go on."""
    loop = asyncio.get_running_loop()
    failed = asyncio.create_task(fleet.failed())
    try:
        while not told.is_set():
            counters = await counters_of(bus, whole)
            strays.reap(fleet.pids)
            progress.update(counters, fleet.alive(Role.WORKER), fleet.alive(Role.SCORER), loop.time())
            while fleet.restarts:
                progress.note(fleet.restarts.popleft())
            for line in await news.lines(counters):
                progress.note(line)
            if counters.status in (BatchStatus.CLOSED, BatchStatus.INCONCLUSIVE):
                return
            fleet.one_ended.clear()
            woken = {asyncio.create_task(told.wait()), asyncio.create_task(fleet.one_ended.wait())}
            await asyncio.wait({failed, *woken}, timeout=_LOOK_EVERY, return_when=asyncio.FIRST_COMPLETED)
            for task in woken:
                task.cancel()
            if failed.done():
                failed.result()
    finally:
        failed.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await failed


@contextlib.contextmanager
def _on_signals() -> Iterator[asyncio.Event]:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.set)
    try:
        yield told
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
