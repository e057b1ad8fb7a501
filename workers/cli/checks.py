"""The commands that try a server, the fences or a solver: nothing of them enters a batch of yours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bus.errors import InputError
from bus.types import Plane
from workers.cli.common import console, finish, guard, quiet_logs, seconds, with_endpoint
from workers.cli.options import HomeOption, JsonFile, PlaneOption, Url

if TYPE_CHECKING:
    from bus.conform import Conformance
    from bus.connection import Endpoint
    from bus.verify import Verification

__all__ = ["bench", "chaos", "conform", "doctor", "lab", "verify"]


def doctor(
    url: Url = None,
    plane: Annotated[Plane | None, typer.Option("--plane", help="Which world to look at; default: live.")] = None,
    home: HomeOption = None,
    acl: Annotated[
        bool, typer.Option("--acl", help="Print the users that the server should have, one a role and plane.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Say whether a server and this machine are fit, and what to do. Or which users the server should have.

    Exit code: 0 nothing to do, 1 warnings, 4 the server cannot be used.

    evalbus doctor --url redis://queue

    evalbus doctor --acl --plane shadow | valkey-cli -h queue
    """
    from workers.doctor import examine, print_acl  # noqa: PLC0415

    quiet_logs()
    if acl and json_file is not None:
        guard(_refuse_json)
    if acl:
        guard(lambda: print_acl(plane, console()))
    elif code := guard(lambda: examine(url, home, plane or Plane.LIVE, json_file, console())):
        raise typer.Exit(code)


def _refuse_json() -> None:
    raise InputError("--json is for what is found; --acl prints rules", remedy="leave one of them out")


def conform(
    files: Annotated[list[Path], typer.Argument(help="Vector files, or directories of them.")],
    url: Url = None,
    home: HomeOption = None,
) -> None:
    """Play conformance vectors through scripts and reference models. The scripts run on a live server.

    evalbus conform tests/vectors
    """
    from bus.conform import collect, conform_on_server  # noqa: PLC0415
    from workers.runtime import SystemRuntime  # noqa: PLC0415

    quiet_logs()
    vectors = guard(lambda: collect(files))

    async def play(endpoint: Endpoint) -> Conformance:
        return await conform_on_server(vectors, endpoint, SystemRuntime(), print)

    if not with_endpoint(play, url, home, single=True).ok:
        raise typer.Exit(5)


def verify(
    fences: Annotated[list[str] | None, typer.Argument(help="Fences to verify; default: all.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The first seed of the schedules.")] = 1,
    json_file: JsonFile = None,
    url: Url = None,
    home: HomeOption = None,
) -> None:
    """Play each fence's acceptance rule on this server. Every naive policy is to be caught.

    evalbus verify transcript histogram --json verified.json
    """
    from workers.verifying import check_input, show, verify_fences  # noqa: PLC0415

    quiet_logs()
    names = guard(lambda: check_input(fences or [], json_file))

    async def play(endpoint: Endpoint) -> Verification:
        return await verify_fences(names, endpoint, seed, json_file)

    found = with_endpoint(play, url, home, single=True)
    guard(lambda: show(found, console()))
    if not found.ok:
        raise typer.Exit(5)


def chaos(
    suite: Annotated[Path, typer.Argument(help="The suite: its directory, or its file.")],
    seed: Annotated[int, typer.Option(min=0, help="Decides which fault strikes whom, and when.")] = 1,
    faults: Annotated[
        str | None, typer.Option(help='Which: "kill,stop", "all,-failover"; default: all that can strike the suite.')
    ] = None,
    minutes: Annotated[
        float, typer.Option(min=0, help="Go on with new batches for so long; default: one batch a kind of server.")
    ] = 0,
    json_file: JsonFile = None,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 3,
    scorers: Annotated[int, typer.Option(min=1, help="Scorer processes.")] = 2,
    plane: PlaneOption = Plane.LIVE,
    home: HomeOption = None,
) -> None:
    """Run a suite while everything around it fails. Then all that it left is checked.

    evalbus chaos examples/repair --seed 7 --minutes 10
    """
    from workers.chaos.command import ChaosOptions, run_chaos  # noqa: PLC0415

    quiet_logs()
    options = ChaosOptions(suite, seed, faults, minutes, workers, scorers, home, json_file, plane)
    guard(lambda: run_chaos(options, console()))


def bench(
    kind: Annotated[
        str, typer.Option(help="Any of noop, model, fanout, calls, startup, latency, distance, flat, peers.")
    ] = "noop,model,fanout,calls,latency",
    runs: Annotated[
        int | None, typer.Option(min=100, max=100_000, help="Runs a measurement; default: 1,000 to 10,000, by kind.")
    ] = None,
    workers: Annotated[str, typer.Option(help="Numbers of worker processes, each measured.")] = "1,2",
    rounds: Annotated[int, typer.Option(min=1, help="Alternating measurements; the median is quoted.")] = 5,
    kills: Annotated[int, typer.Option(min=1, help="latency: workers that are killed.")] = 20,
    batches: Annotated[int, typer.Option(min=10, help="flat: small batches on one server.")] = 100,
    json_file: JsonFile = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw the figures, .png or .svg (needs matplotlib).")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print tables in Markdown, and nothing else.")] = False,
) -> None:
    """Measure what runs cost. Beside a bare loop, the machine's own limit, and other queues.

    evalbus bench --kind noop --workers 2

    evalbus bench --kind flat --runs 100000 --batches 1000 --plot flat.png
    """
    from workers.benching.command import BenchOptions, parts, run_bench, worker_counts  # noqa: PLC0415

    quiet_logs()

    async def measure() -> None:
        options = BenchOptions(
            parts(kind), runs, worker_counts(workers), rounds, kills, batches, json_file, plot, markdown
        )
        await run_bench(options, console())

    finish(measure())


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
    """Serve a model and a ticket API that misbehave on request. Or by seed; they count what they really did.

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
                latency=seconds("--latency", latency),
                tokens=tokens,
                retry_after=seconds("--retry-after", retry_after),
                api_key_env=api_key_env,
                json_log=json_log,
            )
        )

    guard(start)


def simulate(
    suite: Annotated[Path | None, typer.Argument(help="Suite directory or file; default: suites of our own.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 1,
    seeds: Annotated[int, typer.Option(min=1, help="How many schedules are drawn.")] = 1,
    faults: Annotated[
        str | None, typer.Option(help='Kinds of faults, "crash-,lost,model-cut"; default: all. "" is none.')
    ] = None,
    schedule: Annotated[Path | None, typer.Option(help="Repeat the schedule of this file.")] = None,
    found: Annotated[
        Path | None, typer.Option(help="Where the schedule of a violation is written; default: violation-SEED.json")
    ] = None,
    cases: Annotated[int | None, typer.Option(min=1, help="Cases of the suite, at most; default: 6.")] = None,
    json_file: JsonFile = None,
    fleet: Annotated[int | None, typer.Option(min=1, help="Forecast a fleet of so many workers instead.")] = None,
    slots: Annotated[int, typer.Option(min=1, help="fleet: runs that a worker drives at a time.")] = 8,
    runs: Annotated[int, typer.Option(min=1, help="fleet: runs of the batch.")] = 1_000,
    calls: Annotated[int, typer.Option(min=0, help="fleet: model calls of a run.")] = 4,
    call_time: Annotated[str, typer.Option(help="fleet: the median time of a call.")] = "10s",
    spread: Annotated[float, typer.Option(min=0, help="fleet: sigma of the lognormal call times.")] = 0.6,
    tokens: Annotated[int, typer.Option(min=0, help="fleet: tokens of a call.")] = 1_500,
    preempt: Annotated[str, typer.Option(help='fleet: how often a worker is taken away, such as "0.5/h".')] = "0/h",
    lease: Annotated[str, typer.Option(help="fleet: the lease time.")] = "10s",
    max_deliveries: Annotated[int, typer.Option(min=1, help="fleet: attempts at a run.")] = 5,
    resume: Annotated[str, typer.Option(help="fleet: prefix or fresh, as in a suite.")] = "prefix",
    bound: Annotated[int | None, typer.Option(min=1, help="fleet: runs admitted at a time.")] = None,
    model_slots: Annotated[int | None, typer.Option(min=1, help="fleet: calls at the endpoint at once.")] = None,
    costs: Annotated[Path | None, typer.Option(help="fleet: measured costs, .toml or a bench's .json")] = None,
    shards: Annotated[int, typer.Option(min=1, max=16, help="fleet: servers.")] = 1,
    fleet_table: Annotated[bool, typer.Option("--fleet-table", help="Forecast 10 to 1,000 workers on 1 to 6.")] = False,
) -> None:
    """Run the roles in virtual time while things go wrong. Or forecast what a fleet would get done.

    evalbus simulate --seed 1 --seeds 1000

    evalbus simulate examples/repair --seeds 200 --faults crash-,lost

    evalbus simulate --fleet 200 --runs 20000 --preempt 0.5/h
    """
    from workers.simulating import command  # noqa: PLC0415

    quiet_logs()
    guard(lambda: command.check_alone(suite, schedule, fleet))
    if fleet_table or fleet is not None:
        from workers.forecasting import command as forecasting  # noqa: PLC0415 - schedules need none of it
    if fleet_table:
        guard(lambda: forecasting.forecast_table(costs, seed, console()))
        return
    if fleet is not None:
        asked = forecasting.FleetOptions(
            fleet, slots, runs, calls, call_time, spread, tokens, preempt, lease, max_deliveries, resume, bound,
            model_slots, shards,
        )  # fmt: skip
        guard(lambda: forecasting.forecast(asked, costs, seed, json_file, console()))
        return
    if schedule is not None:
        held = guard(lambda: command.repeat(schedule, json_file, console()))
    else:
        options = command.ScheduleOptions(suite, seed, seeds, faults, cases, json_file, found)
        held = guard(lambda: command.simulate(options, console()))
    if not held:
        raise typer.Exit(5)
