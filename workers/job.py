"""The main job, `evalbus run`: declare or resume a batch, run a fleet until it has closed, say what came of it.

Nothing of it is kept here. The batch is in the server; whoever runs the same command with the same batch name goes on
where it stands, and after the close is told the closed result and spends nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from bus.artifacts import artifacts_for, open_artifacts
from bus.cluster import ServerBus, open_bus
from bus.connection import Endpoint, check_fit
from bus.errors import InputError, ServerError
from bus.home import home_directory
from bus.imported.looking import only_for_looking
from bus.partitions import part_name, root_of, split
from bus.port import BatchInfo, BatchSpec, BatchStatus
from bus.rights import ARCHIVING, COMMANDS
from bus.server_url import parse_url
from bus.types import BatchId, Durability, Plane
from workers.brief import brief
from workers.bundle import BundleKey, publish, take_key
from workers.endpoint_news import EndpointNews
from workers.files import check_writable, write_whole
from workers.gating.baseline import with_own_baseline
from workers.histories.archive_place import check_archive
from workers.judging.binding import other_judge
from workers.modelling.table import other_model
from workers.naming import fleet_place
from workers.processes import nursery
from workers.processes.fleet import Fleet
from workers.processes.held_loops import HeldLoopNews, with_held_loops
from workers.processes.interrupt import Interrupted
from workers.processes.rests import RestNews
from workers.processes.role_options import Role, RoleOptions
from workers.processes.strays import Strays
from workers.redaction import hide_access
from workers.rescoring import check_source, next_name
from workers.results.first_holes import FirstHoles
from workers.results.missing import no_such_batch
from workers.results.outcome import Outcome
from workers.results.progress import Progress
from workers.results.whole import Closing, Whole, closing_of, counters_of, whole_of
from workers.runtime import SystemRuntime
from workers.secret_files import glance
from workers.suite import Suite, load_suite
from workers.tools.tables import tool_limits
from workers.trees import ignored

__all__ = ["Fetched", "JobOptions", "batch_name", "fetch_outcome", "fetched", "info_of", "log_directory", "run_job"]

_LOOK_EVERY = 0.2  # seconds between two looks at the batch's counters
_SCORERS = 2
_HAND_BACKS = 20  # of a run, beside its deliveries, before it counts as one that its workers do not survive
_SHORTEST_LIFE = 10_000  # ms; a disk of a process that was merely slow should not be given up
_LONGEST_NAME = 200
_SHOWN_NAME = 60  # characters of one that is none: enough to recognise it
_NAME_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What the command line was given."""

    suite: Path
    workers: int | None
    """None: one a core."""
    scorers: int | None
    """None: two."""
    url: str | None
    home: Path | None
    plane: Plane
    batch: str | None
    json_file: Path | None
    artifacts: str | None
    durability: Durability = Durability.STANDARD
    source: BatchId | None = None
    """A closed batch whose sealed runs are scored anew, by this suite's scorer; then no solver runs."""
    archive: Path | None = None
    """To which the history goes while the batch runs."""
    segment: int | None = None
    """Entries in one file there; None: as many as is usual."""


def batch_name(text: str) -> BatchId:
    """A name that can stand in a key. Raises InputError."""
    if not text or len(text) > _LONGEST_NAME or not set(text) <= _NAME_LETTERS:
        raise InputError(
            f"{brief(text, _SHOWN_NAME)!r} cannot name a batch",
            remedy=f"letters, digits, '.', '_' and '-', at most {_LONGEST_NAME}",
        )
    return BatchId(text)


def spec_of(suite: Suite, batch: BatchId, source: BatchSpec | None = None, plane: Plane = Plane.LIVE) -> BatchSpec:
    """What a batch of this suite declares. `source`: the closed batch whose sealed runs it scores anew."""
    limits = _limits_of_scoring(suite) | (_limits_of_work(suite) if source is None else {})
    bound = suite.bound
    if plane is Plane.SHADOW:
        capacity = suite.shadow.capacity or 2 * bound
        # A run that waits for its tool's place holds one itself: if runs could take them all, none would ever end.
        bound = min(bound, capacity - 1)
        limits |= {"capacity": capacity} | ({"budget": suite.shadow.budget} if suite.shadow.budget else {})
    return BatchSpec(
        batch=batch,
        suite=suite.name or "",
        suite_digest=suite.digest,
        suite_path=str(suite.root / suite.source.name),
        intended=suite.intended,
        quorum=suite.quorum_runs,
        bins=tuple(suite.bins),
        bound=bound,
        max_in_flight=suite.max_in_flight,
        max_deliveries=suite.max_deliveries,
        lease_ms=round(suite.lease * 1000),
        judge_policy=suite.judging.policy,
        replay_budget=suite.judging.replay_budget,
        reclaim_ms=_reclaim_ms(suite),
        gate=suite.gate_rules,
        candidate=suite.candidate if source is None else source.candidate,
        judge=suite.judge,
        limits=limits,
        tree_ignore=_sealed_without(suite) if source is None else source.tree_ignore,
        source="" if source is None else source.batch,
    )


def _sealed_without(suite: Suite) -> tuple[str, ...]:
    return () if suite.workspace is None else suite.workspace.ignore


def _limits_of_work(suite: Suite) -> dict[str, int | str]:
    """What the fences are configured with that not every suite has in its path: `bus.values.LIMITS`."""
    limits: dict[str, int | str] = dict(tool_limits(suite.tools))
    if suite.model is not None:
        limits["compute_retries"] = suite.max_deliveries + _HAND_BACKS
        limits["model_retries"] = suite.model.retries
        limits["model_slots"] = suite.model.slots
    if suite.workspace is not None:
        # Silence that costs a workspace its life: as long as it takes to suspect its holder, and to do so for sure.
        limits["heartbeat_ms"] = max(round(3_000 * suite.lease), _SHORTEST_LIFE)
    return limits


def _reclaim_ms(suite: Suite) -> int:
    """One time for all desks: the longest that the suite names."""
    tables = [suite.model, suite.scorer.model if suite.scorer.kind == "model" else None]
    return round(1_000 * max((table.reclaim for table in tables if table is not None), default=60.0))


def _limits_of_scoring(suite: Suite) -> dict[str, int | str]:
    """Likewise, of what is in the path of a score; the budget is in both."""
    limits: dict[str, int | str] = {}
    if suite.scorer.kind == "model":
        limits["judge_slots"] = suite.scorer.model.slots
    if suite.budget is not None:
        limits["budget"] = suite.budget
    if suite.workspace is not None:
        limits["schemas"] = json.dumps(["bin/1"])
    return limits


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a batch is now."""

    outcome: Outcome
    whole: Whole
    closing: Closing | None
    """None until it has ended."""


async def fetch_outcome(bus: ServerBus, batch: BatchId) -> Outcome:
    """What a batch is now, beside the baseline of its suite; for an ended one the snapshot is computed again."""
    found = await fetched(bus, batch)
    info = found.whole.info
    return found.outcome if info.imported else with_own_baseline(found.outcome, info.spec.suite_path)


async def fetched(bus: ServerBus, batch: BatchId) -> Fetched:
    """What a batch is now, with what it is made of. Raises InputError when there is none of that name."""
    whole = await existing(bus, batch)
    counters = await counters_of(bus, whole)
    if not counters.status.ended:
        return Fetched(Outcome.of(whole.info, counters, None), whole, None)
    if not whole.has_ended:  # it has since
        return await fetched(bus, batch)
    closing = await closing_of(bus, whole)
    return Fetched(Outcome.of(whole.info, closing.counters, closing.snapshot, closing.details), whole, closing)


async def existing(bus: ServerBus, batch: BatchId) -> Whole:
    """What is there under a name. Raises InputError, with the nearest names, when there is nothing."""
    whole = await whole_of(bus, batch)
    if whole is None:
        raise InputError(await no_such_batch(bus, batch))
    return whole


async def info_of(bus: ServerBus, batch: BatchId) -> BatchInfo:
    """What a batch declared. Raises InputError, with the nearest names, when there is none of that name.

    Also for one that is kept in partitions: each of those has a history of its own.
    """
    info = await bus.info(batch)
    if info is None:
        whole = await whole_of(bus, batch)
        if whole is not None:
            first, last = part_name(batch, 1), part_name(batch, whole.of)
            raise InputError(f"batch {batch!r} is kept in {whole.of} partitions", remedy=f"name one: {first} to {last}")
        raise InputError(await no_such_batch(bus, batch))
    return info


def log_directory(home: Path, batch: BatchId) -> Path:
    """Where the processes that a run starts for this batch have their logs."""
    return home / "logs" / batch


def run_job(options: JobOptions) -> Outcome:
    """Run a suite to its closed snapshot. Raises EvalbusError, Interrupted."""
    name = None if options.batch is None else batch_name(options.batch)
    if options.json_file is not None:
        check_writable(options.json_file)
    if options.artifacts is not None:
        open_artifacts(options.artifacts)
    key = take_key()  # before any code of the suite runs
    hide_access(options.url)
    # Before the event loop: a suite may loop while it is loaded, and only here a Ctrl-C gets through to it.
    suite = load_suite(options.suite)
    _check_environment(suite, asks=options.workers != 0, judges=options.scorers != 0)
    for written in (options.json_file, options.archive):
        if written is not None:
            _check_outside(suite, written)
    if options.archive is not None:
        check_archive(options.archive)
    if options.source is None:
        _declarations(suite, name or BatchId(suite.name), options.plane)
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
            name = name or await _fresh_name(bus, suite, options.source)
            outcome = await _run_batch(options, bus, suite, name, home, endpoint, key)
        finally:
            await bus.aclose()
    finally:
        await endpoint.aclose()
    if options.json_file is not None:
        write_whole(options.json_file, json.dumps(outcome.as_json(), indent=1, ensure_ascii=False) + "\n")
    return outcome


async def _fresh_name(bus: ServerBus, suite: Suite, source: BatchId | None) -> BatchId:
    known = await bus.all_batches()
    taken = {*known, *(root_of(name) for name in known)}
    if source is not None:
        return batch_name(next_name(source, taken))
    base = f"{suite.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    names = [base, *(f"{base}.{number}" for number in range(2, 1_000))]
    return batch_name(next(name for name in names if name not in taken))


async def _run_batch(
    options: JobOptions,
    bus: ServerBus,
    suite: Suite,
    name: BatchId,
    home: Path,
    endpoint: Endpoint,
    key: BundleKey | None,
) -> Outcome:
    whole = await whole_of(bus, name)
    if whole is not None:
        _check_ours(whole, suite, options)
    if options.source is None:
        specs = _declarations(suite, name, options.plane)
    else:
        specs = await _rescorings(bus, options.source, suite, name, options.plane)
    if whole is not None and whole.has_ended:
        return await fetch_outcome(bus, name)  # not declared again: that would add a line to a closed history
    for spec in specs:
        await _declare(bus, spec, suite, key)
    whole = await whole_of(bus, name)
    assert whole is not None, "what was declared is there"
    if options.archive is not None:
        from workers.histories.standing import check_goes_on, left_behind  # noqa: PLC0415 - most runs archive nothing

        await check_goes_on(bus, whole.parts, options.archive)
    strays = Strays()
    nursery.adopt_orphans()  # those of a worker that was killed, too
    fleet, news = Fleet(log_directory(home, name)), EndpointNews(log_directory(home, name))
    fleet.start(_roles(options, name, home))
    with _on_signals() as told, Progress(_title(suite, name)) as progress:
        try:
            await _watch(bus, whole, fleet, strays, progress, told, news)
        except ServerError as error:
            raise ServerError(f"{error}; {_resume(options, name)}") from error
        finally:
            await fleet.stop()
            strays.kill()
    if told.is_set() and not (await counters_of(bus, whole)).status.ended:
        raise Interrupted(f"interrupted; batch {name} is open; {_resume(options, name)}")
    if options.archive is not None and (left := await left_behind(bus, whole.parts, options.segment)):
        print(f"evalbus: warning: {left} ({log_directory(home, name)} says why)", file=sys.stderr)
    return with_held_loops(await fetch_outcome(bus, name), log_directory(home, name))


def _check_ours(whole: Whole, suite: Suite, options: JobOptions) -> None:
    """Whether what is there under the batch's name is what this command is about. Raises InputError."""
    info = whole.info
    if info.imported:
        raise only_for_looking(info.spec.batch)
    if info.spec.part is not None:
        whole_name = root_of(info.spec.batch)
        raise InputError(f"{info.spec.batch!r} is a partition", remedy=f"go on with the whole: --batch {whole_name}")
    if info.spec.suite_digest != suite.digest or info.spec.source != (options.source or ""):
        raise _another(info, suite)


def _declarations(suite: Suite, name: BatchId, plane: Plane) -> list[BatchSpec]:
    """What is declared for a suite: one batch, or its partitions. Raises InputError, also for too many."""
    places = {f"[tools.{tool}] slots": table.slots for tool, table in suite.tools.items() if table.effects != "none"}
    try:
        specs = split(spec_of(suite, name, None, plane), suite.partitions, places)
    except InputError as error:
        raise InputError(error.problem, file=suite.source, remedy=error.remedy) from None
    for spec in specs:
        batch_name(spec.batch)
    return specs


async def _rescorings(bus: ServerBus, source: BatchId, suite: Suite, name: BatchId, plane: Plane) -> list[BatchSpec]:
    """What is declared to score a batch anew: one batch beside it, or one beside each of its partitions."""
    whole = await whole_of(bus, source)
    if whole is None:
        raise InputError(await no_such_batch(bus, source))
    if whole.info.imported:  # what it sealed is not in its history, but by name
        raise only_for_looking(source)
    status = whole.info.status
    ids = [run for batch in whole.batches for run in await bus.run_ids(batch)] if whole.has_ended else []
    check_source(replace(whole.info, status=status if whole.has_ended else BatchStatus.OPEN), ids, suite)
    if whole.info.spec.part is not None:
        raise InputError(f"{source!r} is a partition", remedy=f"score the whole anew: {root_of(source)}")
    specs = split(spec_of(suite, name, whole.info.spec, plane), whole.of)
    for spec in specs:
        await bus.put_beside(spec.batch, BatchId(spec.source))
    return specs


async def _declare(bus: ServerBus, spec: BatchSpec, suite: Suite, key: BundleKey | None) -> None:
    """Declare one batch, or find it declared. Raises InputError for another of its name."""
    if key is not None:
        await publish(bus, spec.batch, suite, key)  # before anybody can find the batch and miss its bundle
    decision = await bus.create(spec)
    if not decision.applied:
        info = await bus.info(spec.batch)
        assert info is not None, "what was not created is there"
        raise _another(info, suite)


def _another(info: BatchInfo, suite: Suite) -> InputError:
    if info.spec.source:
        return InputError(
            f"batch {info.spec.batch!r} exists and scores batch {info.spec.source!r} anew, "
            f"with suite {info.spec.suite!r} ({info.spec.suite_digest[:12]})",
            remedy="choose another --batch",
        )
    if info.spec.suite_digest == suite.digest and info.spec.judge != suite.judge:
        return other_judge(info.spec.batch, info.spec.judge, suite.judge)
    if info.spec.suite_digest == suite.digest and suite.target is not None:
        return other_model(info.spec.batch, info.spec.candidate, suite.target)
    return InputError(
        f"batch {info.spec.batch!r} exists and was made from another suite, or another state of it: "
        f"{info.spec.suite_digest[:12]} there, {suite.digest[:12]} here",
        remedy="choose another --batch, or restore the suite",
    )


def _resume(options: JobOptions, name: BatchId) -> str:
    words = ["evalbus", "run", str(options.suite), "--batch", name]
    if options.source is not None:
        words = ["evalbus", "rescore", options.source, "--judge", str(options.suite), "--batch", name]
    words += ["--plane", options.plane.value] if options.plane is not Plane.LIVE else []
    given = {
        "--workers": options.workers if options.source is None else None,
        "--scorers": options.scorers,
        "--json": options.json_file,
        "--artifacts": options.artifacts,
        "--archive": options.archive,
        "--segment": options.segment,
        "--home": options.home if str(options.home) != os.environ.get("EVALBUS_HOME") else None,
    }
    for option, value in given.items():
        words += [] if value is None else [option, str(value)]
    secret = ""
    if options.url and options.url != glance("EVALBUS_URL"):
        target = parse_url(options.url)
        words += ["--url", target.redacted]
        secret = " (with the password for ***)" if target.redacted != target.url else ""
    return f"resume with: {shlex.join(words)}{secret}"


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
    news: EndpointNews,
) -> None:
    """Show the batch until it has ended, the user stops it, or a process says that it cannot go on."""
    loop = asyncio.get_running_loop()
    failed = asyncio.create_task(fleet.failed())
    holes, held, rests = FirstHoles(), HeldLoopNews(loop.time), RestNews(loop.time)
    try:
        while not told.is_set():
            counters = await counters_of(bus, whole)
            strays.reap(fleet.pids)
            progress.update(counters, fleet.alive(Role.WORKER), fleet.alive(Role.SCORER), loop.time())
            while fleet.restarts:
                progress.note(fleet.restarts.popleft())
            for line in (
                *await held.news(bus, whole.batches),
                *await holes.news(bus, whole, counters),
                *news.news(loop.time()),
                *await rests.news(bus),
            ):
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
