"""The command line: `evalbus COMMAND …`. Exit codes are those of the design; see `main`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from bus.errors import EvalbusError, InputError
from bus.types import Plane

if TYPE_CHECKING:
    from rich.console import Console

    from bus.connection import Endpoint
    from bus.redis_bus import RedisBus
    from workers.explaining.reading import Told

T = TypeVar("T")

app = typer.Typer(
    name="evalbus",
    help="Evaluate LLM agents on machines that vanish, and get a pass rate that can be defended.",
    epilog="Exit codes: 0 the gate passed or none is set · 1 it failed · 2 wrong input · 3 inconclusive or open · "
    "4 the server cannot be used · 5 an invariant does not hold · 130 interrupted, resumable.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        print(f"evalbus {version('evalbus')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


server_app = typer.Typer(help="The private server of this directory.", no_args_is_help=True)
app.add_typer(server_app, name="server")

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="EVALBUS_URL", help="redis://, rediss:// or unix:// server; default: a private one."),
]
HomeOption = Annotated[
    Path | None,
    typer.Option("--home", envvar="EVALBUS_HOME", help="Directory of the private server; default: .evalbus"),
]
PlaneOption = Annotated[Plane, typer.Option("--plane", help="Which world to write to.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Also write the result here, whole or not at all.")]
SuiteCopy = Annotated[
    Path | None,
    typer.Option("--suite", help="This machine's copy of the suite; default: where the batch was made."),
]
OnlyBatch = Annotated[
    str | None, typer.Option("--batch", help="Serve this batch and end with it; default: every open one.")
]
ConsumerName = Annotated[
    str | None, typer.Option("--name", help="Consumer name, unique among live processes; default: made up.")
]
Slots = Annotated[int | None, typer.Option("--slots", min=1, help="Runs driven at a time; default: the suite's.")]
Artifacts = Annotated[
    str | None,
    typer.Option("--artifacts", help="Where large artifacts are kept: a shared directory, or s3://bucket/prefix."),
]
FetchSuite = Annotated[
    bool,
    typer.Option("--fetch-suite", help="Take the suite from the batch's bundle, signed with EVALBUS_BUNDLE_KEY."),
]


@app.command()
def run(
    suite: Annotated[Path, typer.Argument(help="Directory with suite.toml or suite.py, or such a file.")],
    workers: Annotated[int | None, typer.Option(min=0, help="Worker processes; default: one a core.")] = None,
    scorers: Annotated[int | None, typer.Option(min=0, help="Scorer processes; default: 2.")] = None,
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    batch: Annotated[str | None, typer.Option(help="Name; one that exists is resumed. Default: a new one.")] = None,
    json_file: JsonFile = None,
    home: HomeOption = None,
    artifacts: Artifacts = None,
) -> None:
    """Run a suite to its closed snapshot, over many processes.

    evalbus run examples/repair --workers 4 --json out.json
    """
    from bus.home import home_directory  # noqa: PLC0415 - each command imports what it needs
    from workers.job import JobOptions, log_directory, run_job  # noqa: PLC0415
    from workers.outcome import render  # noqa: PLC0415

    options = JobOptions(
        suite=suite,
        workers=workers,
        scorers=scorers,
        url=url,
        home=home,
        plane=plane,
        batch=batch,
        json_file=json_file,
        artifacts=artifacts,
    )
    _quiet_logs()
    outcome = _guard(lambda: run_job(options))
    logs = log_directory(home_directory(home), outcome.batch)
    _guard(lambda: render(outcome, _console(), logs if logs.is_dir() else None))
    raise typer.Exit(outcome.gate.exit_code)


@app.command()
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
) -> None:
    """Score a closed batch's sealed runs again, under another judge: a new batch, and the old one stands.

    evalbus rescore nightly --judge judges/strict
    """
    from bus.home import home_directory  # noqa: PLC0415
    from workers.job import JobOptions, batch_name, log_directory, run_job  # noqa: PLC0415
    from workers.outcome import render  # noqa: PLC0415

    _quiet_logs()
    options = JobOptions(
        suite=judge,
        workers=0,
        scorers=scorers,
        url=url,
        home=home,
        plane=plane,
        batch=name,
        json_file=json_file,
        artifacts=artifacts,
        source=_guard(lambda: batch_name(batch)),
    )
    outcome = _guard(lambda: run_job(options))
    logs = log_directory(home_directory(home), outcome.batch)
    _guard(lambda: render(outcome, _console(), logs if logs.is_dir() else None))
    raise typer.Exit(outcome.gate.exit_code)


@app.command()
def status(
    batch: Annotated[str | None, typer.Argument(help="One batch; default: all.")] = None,
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    home: HomeOption = None,
) -> None:
    """Show what is where: every batch on the server, or one in full.

    evalbus status repair-20260101-120000
    """
    from workers.status import show_all, show_one  # noqa: PLC0415

    _quiet_logs()

    async def look(bus: RedisBus) -> None:
        console = _console()
        await (show_all(bus, console) if batch is None else show_one(bus, batch, console))

    _with_bus(look, url, home, plane)


@app.command()
def gate(
    batch: Annotated[str, typer.Argument(help="The batch to judge.")],
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    json_file: JsonFile = None,
    home: HomeOption = None,
) -> None:
    """Give the verdict on a closed snapshot, by the suite's rules.

    evalbus gate nightly --json verdict.json
    """
    import json  # noqa: PLC0415

    from workers.files import check_writable, write_whole  # noqa: PLC0415
    from workers.job import batch_name, fetch_outcome  # noqa: PLC0415
    from workers.outcome import Outcome, render  # noqa: PLC0415

    _quiet_logs()

    async def fetch(bus: RedisBus) -> Outcome:
        return await fetch_outcome(bus, batch_name(batch))

    def check() -> None:
        if json_file is not None:
            check_writable(json_file)

    _guard(check)
    outcome = _with_bus(fetch, url, home, plane)
    if json_file is not None:
        text = json.dumps(outcome.as_json(), indent=1, ensure_ascii=False) + "\n"
        _guard(lambda: write_whole(json_file, text))
    _guard(lambda: render(outcome, _console()))
    raise typer.Exit(outcome.gate.exit_code)


@app.command()
def review(
    batch: Annotated[str, typer.Argument(help="The batch.")],
    runs: Annotated[list[str] | None, typer.Argument(help="Runs to decide about; none: show those that wait.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Have them judged again, by the judge that is bound.")] = False,
    give_up: Annotated[bool, typer.Option("--give-up", help="End them as the hole `unreviewed`.")] = False,
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    home: HomeOption = None,
) -> None:
    """Show the scores that wait for a person, and decide about them.

    evalbus review nightly 'case-7#1' --again
    """
    from workers import reviewing  # noqa: PLC0415

    _quiet_logs()

    def check() -> None:
        if runs and again == give_up:
            raise InputError("runs were named, and not what to do with them", remedy="give --again or --give-up")
        if not runs and (again or give_up):
            raise InputError("no run was named", remedy="name the runs: evalbus review BATCH RUN …")

    _guard(check)

    async def decide(bus: RedisBus) -> None:
        console = _console()
        if not runs:
            await reviewing.show(bus, batch, console)
        else:
            await (reviewing.judge_again if again else reviewing.give_up)(bus, batch, runs, console)

    _with_bus(decide, url, home, plane)


@app.command()
def export(
    batch: Annotated[str, typer.Argument(help="The batch.")],
    file: Annotated[Path, typer.Argument(help="Where to; '-' is standard output.")],
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    home: HomeOption = None,
) -> None:
    """Write a batch's history as chained JSON lines.

    evalbus export nightly nightly.jsonl
    """
    from workers.exporting import export_batch  # noqa: PLC0415
    from workers.job import batch_name  # noqa: PLC0415

    _quiet_logs()
    written = _with_bus(lambda bus: export_batch(bus, batch_name(batch), file), url, home, plane)
    print(f"{written} lines of history in {file}", file=sys.stderr)


@app.command()
def replay(
    history: Annotated[str, typer.Argument(help="A file that `export` wrote ('-': standard input), or a batch.")],
    head: Annotated[str | None, typer.Option(help="The chain's head, as it was written down elsewhere.")] = None,
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    home: HomeOption = None,
) -> None:
    """Derive every decision of a history again, and compare: exit 5 names the first entry that differs.

    evalbus replay nightly.jsonl
    """
    from workers.job import batch_name  # noqa: PLC0415
    from workers.replaying import is_file, replay_batch, replay_file, show  # noqa: PLC0415

    _quiet_logs()
    if is_file(history):
        found = _guard(lambda: replay_file(history, head))
    else:
        found = _with_bus(lambda bus: replay_batch(bus, batch_name(history), head), url, home, plane)
    _guard(lambda: show(found, _console()))


def _role(role: str, **options: Any) -> None:  # noqa: ANN401 - typer has checked each
    from workers import logs  # noqa: PLC0415
    from workers.job import batch_name  # noqa: PLC0415
    from workers.role import run_role  # noqa: PLC0415
    from workers.role_options import Role, RoleOptions  # noqa: PLC0415

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
            fetch_suite=bool(options.get("fetch_suite")),
        )

    _guard(lambda: run_role(start()))


@app.command()
def explain(
    batch: Annotated[str, typer.Argument(help="The batch, or a file that `evalbus export` wrote.")],
    run: Annotated[str, typer.Argument(help="The run, CASE#TRIAL.")],
    mermaid: Annotated[bool, typer.Option("--mermaid", help="As Mermaid text.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write it to FILE.svg, FILE.html or FILE.mmd.")
    ] = None,
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    home: HomeOption = None,
) -> None:
    """Draw one run as a sequence diagram: who said what to whom, and who was refused.

    evalbus explain nightly "interval_merging#1" -o run.html
    """
    from workers.explaining.command import check_output, show_picture  # noqa: PLC0415

    _quiet_logs()
    _guard(lambda: check_output(output))
    told = _told(batch, run, url, plane, home)
    _guard(lambda: show_picture(told, _console(), as_mermaid=mermaid, output=output))


@app.command()
def why(
    batch: Annotated[str, typer.Argument(help="The batch, or a file that `evalbus export` wrote.")],
    run: Annotated[str, typer.Argument(help="The run, CASE#TRIAL.")],
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    home: HomeOption = None,
) -> None:
    """Say in words why one run has its verdict: who judged what, who was refused, what was spent.

    evalbus why nightly "interval_merging#1"
    """
    from workers.explaining.command import show_words  # noqa: PLC0415

    _quiet_logs()
    told = _told(batch, run, url, plane, home)
    _guard(lambda: show_words(told, _console()))


def _told(batch: str, run: str, url: str | None, plane: Plane, home: Path | None) -> Told:
    from workers.explaining.reading import file_of, read_file, read_server  # noqa: PLC0415
    from workers.job import batch_name  # noqa: PLC0415

    file = _guard(lambda: file_of(batch))
    if file is not None:
        return _guard(lambda: read_file(file, run))
    name = _guard(lambda: batch_name(batch))
    return _with_bus(lambda bus: read_server(bus, name, run), url, home, plane)


@app.command()
def planner(
    url: Url = None,
    suite: SuiteCopy = None,
    batch: OnlyBatch = None,
    plane: PlaneOption = Plane.LIVE,
    name: ConsumerName = None,
    home: HomeOption = None,
    artifacts: Artifacts = None,
    fetch_suite: FetchSuite = False,
) -> None:
    """Plan until told to stop: admit runs, find lost ones, close batches.

    evalbus planner --url redis://queue:6379 --suite /suite
    """
    _role(
        "planner", url=url, suite=suite, batch=batch, plane=plane, name=name, home=home, artifacts=artifacts,
        fetch_suite=fetch_suite,
    )  # fmt: skip


@app.command()
def worker(
    url: Url = None,
    suite: SuiteCopy = None,
    batch: OnlyBatch = None,
    plane: PlaneOption = Plane.LIVE,
    name: ConsumerName = None,
    slots: Slots = None,
    home: HomeOption = None,
    artifacts: Artifacts = None,
    fetch_suite: FetchSuite = False,
) -> None:
    """Work until told to stop: hold leases, drive the solver, seal runs.

    evalbus worker --url redis://queue:6379 --suite /suite
    """
    _role(
        "worker", url=url, suite=suite, batch=batch, plane=plane, name=name, slots=slots, home=home,
        artifacts=artifacts, fetch_suite=fetch_suite,
    )  # fmt: skip


@app.command()
def scorer(
    url: Url = None,
    suite: SuiteCopy = None,
    batch: OnlyBatch = None,
    plane: PlaneOption = Plane.LIVE,
    name: ConsumerName = None,
    slots: Slots = None,
    home: HomeOption = None,
    artifacts: Artifacts = None,
    fetch_suite: FetchSuite = False,
) -> None:
    """Score until told to stop: judge sealed runs.

    evalbus scorer --url redis://queue:6379 --suite /suite
    """
    _role(
        "scorer", url=url, suite=suite, batch=batch, plane=plane, name=name, slots=slots, home=home,
        artifacts=artifacts, fetch_suite=fetch_suite,
    )  # fmt: skip


@app.command()
def doctor(
    url: Url = None,
    plane: Annotated[Plane | None, typer.Option("--plane", help="Which world to look at; default: live.")] = None,
    home: HomeOption = None,
    acl: Annotated[
        bool, typer.Option("--acl", help="Print the users that the server should have, one a role and plane.")
    ] = False,
) -> None:
    """Say whether a server is fit to carry batches, or which users it should have.

    evalbus doctor --acl --plane shadow | valkey-cli -h queue
    """
    from workers.doctor import examine, print_acl  # noqa: PLC0415

    _quiet_logs()
    if acl:
        _guard(lambda: print_acl(plane, _console()))
    else:
        _guard(lambda: examine(url, home, plane or Plane.LIVE, _console()))


@app.command()
def conform(
    files: Annotated[list[Path], typer.Argument(help="Vector files, or directories of them.")],
    url: Url = None,
    home: HomeOption = None,
) -> None:
    """Play conformance vectors through the scripts on a live server and through the reference models.

    evalbus conform tests/vectors
    """
    from bus.conform import Conformance, collect, conform_on_server  # noqa: PLC0415
    from workers.runtime import SystemRuntime  # noqa: PLC0415

    _quiet_logs()
    vectors = _guard(lambda: collect(files))

    async def play(endpoint: Endpoint) -> Conformance:
        return await conform_on_server(vectors, endpoint, SystemRuntime(), print)

    if not _with_endpoint(play, url, home).ok:
        raise typer.Exit(5)


@app.command()
def verify(
    fences: Annotated[list[str] | None, typer.Argument(help="Fences to verify; default: all.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The first seed of the schedules.")] = 1,
    json_file: JsonFile = None,
    url: Url = None,
    home: HomeOption = None,
) -> None:
    """Play each fence's acceptance rule on this server, and catch every naive policy.

    evalbus verify transcript histogram --json verified.json
    """
    from bus.verify import Verification  # noqa: PLC0415
    from workers.verifying import check_input, show, verify_fences  # noqa: PLC0415

    _quiet_logs()
    names = _guard(lambda: check_input(fences or [], json_file))

    async def play(endpoint: Endpoint) -> Verification:
        return await verify_fences(names, endpoint, seed, json_file)

    found = _with_endpoint(play, url, home)
    _guard(lambda: show(found, _console()))
    if not found.ok:
        raise typer.Exit(5)


@app.command()
def bench(
    runs: Annotated[int, typer.Option(min=100, help="No-op runs a measurement.")] = 2_000,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="Alternating measurements; the median is quoted.")] = 3,
    json_file: JsonFile = None,
) -> None:
    """Measure no-op runs through all three groups, against a bare loop on the same server.

    evalbus bench --runs 2000
    """
    from workers.bench import run_bench  # noqa: PLC0415

    _quiet_logs()
    _finish(run_bench(runs, workers, rounds, json_file, _console()))


@app.command()
def lab(
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; default: loopback, which nobody else can reach.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: a free one; the first line says which.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Decides answers and mischief.")] = 0,
    mischief: Annotated[
        str | None, typer.Option(help='Rates, "cut=0.2,tickets.missing-echo=0.1", or a .toml or .json file of them.')
    ] = None,
    latency: Annotated[str | None, typer.Option(help='Time before each token, such as "20ms".')] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="Words an answer; default: a few.")] = None,
    retry_after: Annotated[str, typer.Option(help="Time that a refusal asks to wait.")] = "1s",
    api_key_env: Annotated[
        str | None, typer.Option(help="Environment variable with the key that model requests must carry.")
    ] = None,
    json_log: Annotated[Path | None, typer.Option(help="Append one line of JSON a request.")] = None,
) -> None:
    """Serve a model and a ticket API that misbehave on request and by seed, and count what they really did.

    evalbus lab --port 8377 --seed 7 --mischief "cut=0.2,429=0.1"
    """
    from workers.lab.command import LabOptions, run_lab  # noqa: PLC0415

    def start() -> None:
        run_lab(
            LabOptions(
                host=host,
                port=port,
                seed=seed,
                mischief=mischief,
                latency=_seconds("--latency", latency),
                tokens=tokens,
                retry_after=_seconds("--retry-after", retry_after),
                api_key_env=api_key_env,
                json_log=json_log,
            )
        )

    _guard(start)


def _seconds(option: str, written: str | None) -> float:
    from workers.quantities import duration  # noqa: PLC0415

    try:
        return 0.0 if written is None else duration(written)
    except ValueError as error:
        raise InputError(f"{option}: {error}") from None


@server_app.command("start")
def server_start(home: HomeOption = None) -> None:
    """Start it, and keep it up without users until `stop`."""
    from bus.home import home_directory  # noqa: PLC0415
    from bus.server import start_pinned  # noqa: PLC0415
    from workers.status import show_server  # noqa: PLC0415

    _guard(lambda: show_server(start_pinned(home_directory(home)), _console()))


@server_app.command("stop")
def server_stop(home: HomeOption = None) -> None:
    """Stop it; its data stay."""
    from bus.home import home_directory  # noqa: PLC0415
    from bus.server import stop  # noqa: PLC0415
    from workers.status import show_server  # noqa: PLC0415

    _guard(lambda: show_server(stop(home_directory(home)), _console()))


@server_app.command("status")
def server_status(home: HomeOption = None) -> None:
    """Say whether it runs, and on what data."""
    from bus.home import home_directory  # noqa: PLC0415
    from bus.server import status as look  # noqa: PLC0415
    from workers.status import show_server  # noqa: PLC0415

    _guard(lambda: show_server(look(home_directory(home)), _console()))


# --- what the commands share -----------------------------------------------------------------------------


def _console() -> Console:
    from workers.screen import Screen  # noqa: PLC0415 - a tenth of a second that `--help` need not pay

    return Screen()


def _quiet_logs() -> None:
    from workers import logs  # noqa: PLC0415

    _guard(lambda: logs.configure("error"))


def _with_endpoint(
    use: Callable[[Endpoint], Coroutine[Any, Any, T]],
    url: str | None,
    home: Path | None,
    *,
    only_look: bool = False,
) -> T:
    """`only_look`: the user need not have the right to more than reading."""
    from bus.connection import Endpoint, check_fit  # noqa: PLC0415
    from bus.fitness import COMMANDS  # noqa: PLC0415
    from bus.home import home_directory  # noqa: PLC0415

    async def go() -> T:
        endpoint = await asyncio.to_thread(Endpoint.from_options, url, home_directory(home))
        try:
            await check_fit(endpoint.target, commands=() if only_look else COMMANDS)
            return await use(endpoint)
        finally:
            await endpoint.aclose()

    return _finish(go())


def _with_bus(use: Callable[[RedisBus], Coroutine[Any, Any, T]], url: str | None, home: Path | None, plane: Plane) -> T:
    from bus.redis_bus import RedisBus  # noqa: PLC0415
    from workers.runtime import SystemRuntime  # noqa: PLC0415

    async def go(endpoint: Endpoint) -> T:
        bus = RedisBus(endpoint, SystemRuntime(), plane=plane, patience=5.0)
        try:
            return await use(bus)
        finally:
            await bus.aclose()

    return _with_endpoint(go, url, home, only_look=True)


def _finish(job: Coroutine[Any, Any, T]) -> T:
    return _guard(lambda: asyncio.run(job))


def _guard(action: Callable[[], T]) -> T:
    """Run; turn what a user may see into one line and an exit code."""
    from workers.interrupt import Interrupted  # noqa: PLC0415

    try:
        return action()
    except Interrupted as stop:
        print(f"evalbus: {stop}", file=sys.stderr)
        raise typer.Exit(130) from None
    except KeyboardInterrupt:
        print("evalbus: interrupted", file=sys.stderr)
        raise typer.Exit(130) from None
    except EvalbusError as error:
        print(f"evalbus: {error}", file=sys.stderr)
        raise typer.Exit(error.exit_code) from None
    except BrokenPipeError:  # the reader of our output has left
        sys.stderr.close()
        raise typer.Exit(0) from None


def main() -> None:
    """The entry point."""
    app()


if __name__ == "__main__":
    main()
