"""The commands that evaluate: the main job, and the roles one by one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bus.errors import InputError
from bus.types import Durability, Plane
from workers.cli.common import console, guard, quiet_logs
from workers.cli.options import (
    ArchiveTo,
    Artifacts,
    ConsumerName,
    DurabilityOption,
    FetchSuite,
    HomeOption,
    JsonFile,
    MetricsPlace,
    OnlyBatch,
    PlaneOption,
    SegmentSize,
    Slots,
    SuiteCopy,
    Url,
)

__all__ = ["planner", "rescore", "run", "scorer", "worker"]


def run(
    suite: Annotated[
        Path, typer.Argument(help="Directory with suite.toml or suite.py, or such a file; or inspect:FILE.py@task.")
    ],
    workers: Annotated[int | None, typer.Option(min=0, help="Worker processes; default: one a core.")] = None,
    scorers: Annotated[int | None, typer.Option(min=0, help="Scorer processes; default: 2.")] = None,
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    batch: Annotated[str | None, typer.Option(help="Name; one that exists is resumed. Default: a new one.")] = None,
    json_file: JsonFile = None,
    home: HomeOption = None,
    artifacts: Artifacts = None,
    durability: DurabilityOption = Durability.STANDARD,
    archive: ArchiveTo = None,
    segment: SegmentSize = None,
    model: Annotated[str | None, typer.Option(help="Of an Inspect task: the model, as Inspect names it.")] = None,
    task_arg: Annotated[
        list[str] | None, typer.Option("-T", metavar="NAME=VALUE", help="Of an Inspect task: an argument; repeatable.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Of an Inspect task: runs of each sample.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The first cases only.")] = None,
    case: Annotated[
        list[str] | None, typer.Option("--case", metavar="CASE", help="These cases only; repeatable.")
    ] = None,
) -> None:
    """Run a suite to its closed snapshot, over many processes.

    evalbus run examples/repair --workers 4 --json out.json

    evalbus run inspect:examples/inspect/tasks.py@addition --workers 4
    """
    from bus.home import home_directory  # noqa: PLC0415
    from workers.inspecting.target import is_target, plain, with_options  # noqa: PLC0415
    from workers.job import log_directory, run_job  # noqa: PLC0415
    from workers.job_options import JobOptions  # noqa: PLC0415
    from workers.results.outcome import render  # noqa: PLC0415

    of_task = limit if guard(lambda: is_target(plain(suite))) else None  # to a task, its options are a part of its name
    options = JobOptions(
        suite=guard(lambda: with_options(suite, model, task_arg or (), epochs, of_task)),
        limit=limit if of_task is None else None,
        cases=guard(lambda: _one_of(limit, case)),
        workers=workers,
        scorers=scorers,
        url=url,
        home=home,
        plane=plane,
        batch=batch,
        json_file=json_file,
        artifacts=artifacts,
        durability=durability,
        archive=archive,
        segment=segment,
    )
    quiet_logs()
    outcome = guard(lambda: run_job(options))
    logs = log_directory(home_directory(home), outcome.batch)
    guard(lambda: render(outcome, console(), logs if logs.is_dir() else None))
    if sys.stderr.isatty() and outcome.status.ended and (outcome.holes or any([*outcome.bins.values()][1:])):
        print(
            f"evalbus: what they answered: evalbus show {outcome.batch}; on a page: evalbus report {outcome.batch}",
            file=sys.stderr,
        )
    raise typer.Exit(outcome.gate.exit_code)


def _one_of(limit: int | None, cases: Sequence[str] | None) -> Sequence[str]:
    if limit is not None and cases:
        raise InputError("--limit and --case were given", remedy="name the cases, or how many of the first")
    return cases or ()


def rescore(
    batch: Annotated[str, typer.Argument(help="The closed batch whose sealed runs are scored anew.")],
    judge: Annotated[
        Path, typer.Option("--judge", help="Suite with the same cases whose [scorer] judges; its solver never runs.")
    ],
    scorers: Annotated[int | None, typer.Option(min=0, help="Scorer processes; default: 2.")] = None,
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    name: Annotated[
        str | None,
        typer.Option("--batch", help="Name of the new batch; one that exists is resumed. Default: BATCH.rescored-N."),
    ] = None,
    json_file: JsonFile = None,
    home: HomeOption = None,
    artifacts: Artifacts = None,
    durability: DurabilityOption = Durability.STANDARD,
    archive: ArchiveTo = None,
    segment: SegmentSize = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The first cases only, as the batch has them.")] = None,
    case: Annotated[
        list[str] | None, typer.Option("--case", metavar="CASE", help="Likewise, these cases; repeatable.")
    ] = None,
) -> None:
    """Score a closed batch's runs again, under another judge. It is a new batch, and the old one stands.

    evalbus rescore nightly --judge judges/strict
    """
    from bus.home import home_directory  # noqa: PLC0415
    from workers.inspecting.target import plain  # noqa: PLC0415
    from workers.job import log_directory, run_job  # noqa: PLC0415
    from workers.job_options import JobOptions  # noqa: PLC0415
    from workers.naming import batch_name  # noqa: PLC0415
    from workers.results.outcome import render  # noqa: PLC0415

    quiet_logs()
    options = JobOptions(
        suite=guard(lambda: plain(judge)),
        workers=0,
        scorers=scorers,
        url=url,
        home=home,
        plane=plane,
        batch=name,
        json_file=json_file,
        artifacts=artifacts,
        durability=durability,
        archive=archive,
        segment=segment,
        source=guard(lambda: batch_name(batch)),
        limit=limit,
        cases=guard(lambda: _one_of(limit, case)),
    )
    outcome = guard(lambda: run_job(options))
    logs = log_directory(home_directory(home), outcome.batch)
    guard(lambda: render(outcome, console(), logs if logs.is_dir() else None))
    raise typer.Exit(outcome.gate.exit_code)


def planner(
    url: Url = None,
    suite: SuiteCopy = None,
    batch: OnlyBatch = None,
    plane: PlaneOption = Plane.LIVE,
    name: ConsumerName = None,
    home: HomeOption = None,
    artifacts: Artifacts = None,
    durability: DurabilityOption = Durability.STANDARD,
    fetch_suite: FetchSuite = False,
    archive: ArchiveTo = None,
    segment: SegmentSize = None,
    metrics: MetricsPlace = None,
) -> None:
    """Plan until told to stop. Admit runs, find lost ones, close batches.

    evalbus planner --url redis://queue:6379 --suite /suite
    """
    _role(
        "planner", url=url, suite=suite, batch=batch, plane=plane, name=name, home=home, artifacts=artifacts,
        fetch_suite=fetch_suite, durability=durability, archive=archive, segment=segment, metrics=metrics,
    )  # fmt: skip


def worker(
    url: Url = None,
    suite: SuiteCopy = None,
    batch: OnlyBatch = None,
    plane: PlaneOption = Plane.LIVE,
    name: ConsumerName = None,
    slots: Slots = None,
    home: HomeOption = None,
    artifacts: Artifacts = None,
    durability: DurabilityOption = Durability.STANDARD,
    fetch_suite: FetchSuite = False,
    metrics: MetricsPlace = None,
) -> None:
    """Work until told to stop. Hold leases, drive the solver, seal runs.

    evalbus worker --url redis://queue:6379 --suite /suite
    """
    _role(
        "worker", url=url, suite=suite, batch=batch, plane=plane, name=name, slots=slots, home=home,
        artifacts=artifacts, fetch_suite=fetch_suite, durability=durability, metrics=metrics,
    )  # fmt: skip


def scorer(
    url: Url = None,
    suite: SuiteCopy = None,
    batch: OnlyBatch = None,
    plane: PlaneOption = Plane.LIVE,
    name: ConsumerName = None,
    slots: Slots = None,
    home: HomeOption = None,
    artifacts: Artifacts = None,
    durability: DurabilityOption = Durability.STANDARD,
    fetch_suite: FetchSuite = False,
    metrics: MetricsPlace = None,
) -> None:
    """Score until told to stop: judge sealed runs.

    evalbus scorer --url redis://queue:6379 --suite /suite
    """
    _role(
        "scorer", url=url, suite=suite, batch=batch, plane=plane, name=name, slots=slots, home=home,
        artifacts=artifacts, fetch_suite=fetch_suite, durability=durability, metrics=metrics,
    )  # fmt: skip


def _role(role: str, **options: Any) -> None:  # noqa: ANN401 - typer has checked each
    from workers.naming import batch_name  # noqa: PLC0415
    from workers.processes import logs  # noqa: PLC0415
    from workers.processes.role_options import Role, RoleOptions  # noqa: PLC0415
    from workers.role import run_role  # noqa: PLC0415

    def text(value: object) -> str | None:
        return None if value is None else str(value)

    def start() -> RoleOptions:
        logs.configure(role=role)
        batch = options["batch"]
        return RoleOptions(
            role=Role(role),
            url=options["url"],
            home=text(options["home"]),
            plane=options["plane"],
            suite=text(options["suite"]),
            batch=None if batch is None else batch_name(batch),
            name=options["name"],
            slots=options.get("slots"),
            artifacts=text(options.get("artifacts")),
            archive=text(options.get("archive")),
            segment=options.get("segment"),
            metrics=options.get("metrics"),
            fetch_suite=bool(options.get("fetch_suite")),
            durability=options["durability"],
        )

    guard(lambda: run_role(start()))
