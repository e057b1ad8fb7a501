"""The commands about the number: its gate, what a batch could tell before it is run, and how often the gate flips."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bus.errors import InputError
from bus.types import Plane
from workers.cli.common import console, guard, quiet_logs, with_bus
from workers.cli.options import Artifacts, HomeOption, JsonFile, PlaneOption, Url

if TYPE_CHECKING:
    from bus.cluster import ServerBus
    from workers.gating.sources import Found

__all__ = ["calibrate", "gate", "plan"]

MinPassRate = Annotated[
    float | None, typer.Option("--min-pass-rate", help="At least this share of the scored runs must pass.")
]
MaxHoles = Annotated[int | None, typer.Option("--max-holes", help="At most so many runs may have no score.")]
MaxCost = Annotated[float | None, typer.Option("--max-cost", help="At most so much may have been spent, by --price.")]
Price = Annotated[float | None, typer.Option("--price", help="Of a million tokens, prompts and answers together.")]
Margin = Annotated[
    float | None,
    typer.Option("--margin", help="How far below the baseline the rate may be; default: 0, or the suite's."),
]
Confidence = Annotated[
    float | None,
    typer.Option("--confidence", help="Compare the difference's lower bound at this confidence, not the difference."),
]
MustPass = Annotated[
    list[str] | None, typer.Option("--must-pass", metavar="CASE", help="Every run of this case must pass; repeatable.")
]


def gate(
    batch: Annotated[str, typer.Argument(help="A batch, a file that `export` or `--freeze` wrote, or '-'.")],
    min_pass_rate: MinPassRate = None,
    max_holes: MaxHoles = None,
    max_cost: MaxCost = None,
    price: Price = None,
    no_worse_than: Annotated[
        str | None,
        typer.Option(
            "--no-worse-than", "--baseline", metavar="BASELINE", help="A batch, a history or a frozen snapshot."
        ),
    ] = None,
    margin: Margin = None,
    confidence: Confidence = None,
    must_pass: MustPass = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="FIELD", help="Runs whose cases share this metadata hang together."),
    ] = None,
    by: Annotated[
        list[str] | None, typer.Option("--by", metavar="FIELD", help="A table by this metadata; may be repeated.")
    ] = None,
    k: Annotated[str | None, typer.Option("--k", help='For pass@k and pass^k, "1,3"; default: 1 to 5.')] = None,
    power: Annotated[float, typer.Option("--power", help="For the smallest detectable difference.")] = 0.8,
    suite: Annotated[
        Path | None, typer.Option("--suite", help="A copy of the suite, for --cluster and --by; default: where it was.")
    ] = None,
    junit: Annotated[Path | None, typer.Option("--junit", help="Write JUnit XML here.")] = None,
    freeze: Annotated[
        Path | None, typer.Option("--freeze", help="Write the snapshot here, as a later baseline.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option("--figures", help="Write every figure and rule here, as JSON.")
    ] = None,
    on_github: Annotated[
        bool | None,
        typer.Option(
            "--github/--no-github", help="Annotations and step summary; default: where GITHUB_ACTIONS is true."
        ),
    ] = None,
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    json_file: JsonFile = None,
    home: HomeOption = None,
) -> None:
    """Give the verdict on a closed batch. The rules are its suite's, and those of the command line.

    evalbus gate nightly --json verdict.json

    evalbus gate nightly --no-worse-than baseline.json --margin 0.02 --junit junit.xml
    """
    from workers.gating import command, github  # noqa: PLC0415

    quiet_logs()
    options = command.GateOptions(
        rules=_given(
            min_pass_rate=min_pass_rate,
            max_holes=max_holes,
            max_cost=max_cost,
            price=price,
            no_worse_than=no_worse_than,
            margin=margin,
            confidence=confidence,
            must_pass=must_pass or None,
        ),
        suite=suite,
        cluster=cluster,
        by=by or (),
        ks=guard(lambda: _numbers(k)),
        power=power,
        json_file=json_file,
        figures_file=figures,
        junit_file=junit,
        freeze_file=freeze,
        on_github=github.is_on_github() if on_github is None else on_github,
    )
    guard(lambda: command.check_options(options))
    named = [batch] if no_worse_than is None else [batch, no_worse_than]
    shown = options.junit_file is not None or options.on_github
    found, *before = _found(named, url, home, plane, suite, answers=shown)
    verdict = guard(lambda: command.judge(found, before[0] if before else None, options))
    guard(lambda: command.tell(verdict, options, console()))
    raise typer.Exit(verdict.outcome.gate.exit_code)


def plan(
    suite: Annotated[Path, typer.Argument(help="Directory with suite.toml or suite.py, or such a file.")],
    cases: Annotated[
        int | None, typer.Option("--cases", min=1, help="Plan with so many; default: the suite's.")
    ] = None,
    trials: Annotated[int | None, typer.Option("--trials", min=1, help="Likewise, of each case.")] = None,
    rate: Annotated[
        float | None, typer.Option("--baseline-rate", help="The pass rate to expect; default: --like's, or 0.5.")
    ] = None,
    delta: Annotated[float | None, typer.Option("--delta", help="A drop of the pass rate that matters.")] = None,
    alpha: Annotated[float, typer.Option("--alpha", help="How often chance may look like a difference.")] = 0.05,
    power: Annotated[float, typer.Option("--power", help="How often a difference is to be found.")] = 0.8,
    correlation: Annotated[
        float | None, typer.Option("--correlation", help="Of two runs of a case; default: --like's trials', or 0.")
    ] = None,
    tokens: Annotated[float | None, typer.Option("--tokens", help="Of a run; default: --like's.")] = None,
    price: Price = None,
    like: Annotated[
        str | None, typer.Option("--like", metavar="BATCH", help="A batch, or its file, that was like it.")
    ] = None,
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    json_file: JsonFile = None,
    home: HomeOption = None,
) -> None:
    """Say what a batch could tell and what it would cost. Nothing is run.

    evalbus plan examples/repair --baseline-rate 0.85 --delta 0.05 --like nightly --price 2.5
    """
    import json  # noqa: PLC0415

    from workers.files import check_writable, write_whole  # noqa: PLC0415
    from workers.gating.planning import PlanOptions, plan_of, show  # noqa: PLC0415
    from workers.suite import load_suite  # noqa: PLC0415

    quiet_logs()
    options = PlanOptions(cases, trials, rate, delta, alpha, power, correlation, tokens, price)

    def check() -> None:
        options.check()
        if json_file is not None:
            check_writable(json_file)

    guard(check)
    loaded = guard(lambda: load_suite(suite, check_code=False, check_targets=True))  # as `run` would refuse it
    found = None if like is None else _found([like], url, home, plane)[0]
    made = guard(lambda: plan_of(loaded, found, options))
    if json_file is not None:
        text = json.dumps(made.as_json(), indent=1, ensure_ascii=False) + "\n"
        guard(lambda: write_whole(json_file, text))
    guard(lambda: show(made, console()))


def calibrate(
    targets: Annotated[
        list[str], typer.Argument(metavar="SUITE | BATCH…", help="A suite with --repeats, or batches of it.")
    ],
    repeats: Annotated[int | None, typer.Option("--repeats", min=2, help="Run the suite so often.")] = None,
    batch: Annotated[
        str | None, typer.Option("--batch", help="The new batches are BATCH.1, …; those that exist are gone on with.")
    ] = None,
    min_pass_rate: MinPassRate = None,
    max_holes: MaxHoles = None,
    margin: Annotated[
        float | None, typer.Option("--margin", help="Also compare each with each: is it worse by more than this?")
    ] = None,
    must_pass: MustPass = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=0, help="Worker processes; default: one a core.")
    ] = None,
    scorers: Annotated[int | None, typer.Option("--scorers", min=0, help="Scorer processes; default: 2.")] = None,
    artifacts: Artifacts = None,
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    json_file: JsonFile = None,
    home: HomeOption = None,
) -> None:
    """Say how often the gate flips for the same candidate. Of a suite repeated, or of batches that are there.

    evalbus calibrate examples/repair --repeats 10 --margin 0.02

    evalbus calibrate nightly-1 nightly-2 nightly-3.jsonl.zst
    """
    import json  # noqa: PLC0415

    from workers.files import check_writable, write_whole  # noqa: PLC0415
    from workers.gating import calibrating  # noqa: PLC0415
    from workers.gating.command import rules_of  # noqa: PLC0415
    from workers.job_options import JobOptions  # noqa: PLC0415
    from workers.suite import load_suite  # noqa: PLC0415

    quiet_logs()
    rules = _given(min_pass_rate=min_pass_rate, max_holes=max_holes, margin=margin, must_pass=must_pass or None)

    def batches() -> Sequence[str]:
        place = calibrating.check_targets(targets, repeats)
        rules_of({}, {name: value for name, value in rules.items() if name != "margin"})
        if margin is not None and not 0 <= margin <= 1:
            raise InputError(f"--margin is {margin:g}", remedy="a number from 0 to 1")
        if json_file is not None:
            check_writable(json_file)
        if place is None or repeats is None:
            return targets
        job = JobOptions(place, workers, scorers, url, home, plane, None, None, artifacts)
        return calibrating.repeat(job, batch, repeats, load_suite(place, check_code=False).name)

    names = guard(batches)
    found = _found(names, url, home, plane)
    made = guard(lambda: calibrating.calibrated(found, rules))
    if json_file is not None:
        text = json.dumps(made.as_json(), indent=1, ensure_ascii=False) + "\n"
        guard(lambda: write_whole(json_file, text))
    guard(lambda: calibrating.show(made, console()))


def _given(**rules: Any) -> dict[str, Any]:  # noqa: ANN401 - typer has checked each
    return {name: value for name, value in rules.items() if value is not None}


def _numbers(written: str | None) -> list[int]:
    if written is None:
        return []
    words = [word.strip() for word in written.split(",")]
    if not all(word.isascii() and word.isdigit() and int(word) for word in words):
        raise InputError(f"--k is {written[:40]!r}", remedy='numbers of trials, such as "1,3"')
    return sorted({int(word) for word in words})


def _found(
    named: Sequence[str],
    url: str | None,
    home: Path | None,
    plane: Plane,
    suite: Path | None = None,
    *,
    answers: bool = False,
) -> list[Found]:
    """Each, in order: files without a server, all others from one connection; the first with `answers`."""
    from workers.gating.sources import from_bus, from_file  # noqa: PLC0415
    from workers.histories.history_files import is_history  # noqa: PLC0415

    files = {one: guard(partial(from_file, one)) for one in dict.fromkeys(named) if is_history(one)}
    others = [one for one in dict.fromkeys(named) if one not in files]

    async def fetch(bus: ServerBus) -> dict[str, Found]:
        return {one: await from_bus(bus, one, suite, answers=answers and one == named[0]) for one in others}

    live = with_bus(fetch, url, home, plane) if others else {}
    sys.stdout.flush()
    return [files[one] if one in files else live[one] for one in named]
