"""The suites that are run for their cost: what a run does, and what its history must then say.

    noop      the solver answers at once: planner, worker, scorer and all that guards their steps
    model     one call of a model that answers in 64 chunks at once
    fanout    three calls of tools with effects outside, made together and joined

Each also comes in a form whose solver waits (`waiting`): for latencies at a given load.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from workers.benching.endpoint import CHUNKS
from workers.suite import Suite, load_suite

__all__ = ["DEPTH", "WARM", "Kind", "SuiteOptions", "expected", "make_suite"]

DEPTH = 64
"""Runs that a worker process drives at a time, and messages that the bare loop pipelines."""

WARM = 200
"""Runs of a batch that comes before the one that is measured."""

_TOOLS = 3


class Kind(StrEnum):
    """What a run does."""

    NOOP = "noop"
    MODEL = "model"
    FANOUT = "fanout"


_SUITE = """\
name = "{kind}"
cases = "cases.jsonl"
bound = {bound}
max_in_flight = {in_flight}
quorum = "100%"
concurrency = {depth}
lease = "{lease}"
timeout = "10m"
[solver]
python = "solver.py:solve"
[scorer]
kind = "exact"
"""

_MODEL = """\
[model]
base_url = "{url}"
name = "bench"
max_tokens = 128
slots = 1000
"""

_TOOL = """\
[tools.touch]
python = "solver.py:touch"
effects = "outside"
slots = 1000
[tools.untouch]
python = "solver.py:touch"
effects = "outside"
slots = 1000
"""

_SOLVERS: Mapping[Kind, str] = {
    Kind.NOOP: "async def solve(case, run):\n    return case.target\n",
    Kind.MODEL: (
        "async def solve(case, run):\n"
        "    reply = await run.model.complete(case.input)\n"
        f'    return case.target if reply.text.count("w") == {CHUNKS} else reply.text\n'
    ),
    Kind.FANOUT: (
        "from workers.tools import call\n\n\n"
        "async def touch(number, context):\n"
        "    return context.key\n\n\n"
        "async def solve(case, run):\n"
        f'    told = await run.tools.gather(*(call("touch", number=number) for number in range({_TOOLS})))\n'
        "    return case.target if all(one.ok for one in told) else str(told)\n"
    ),
}

_WAITING = """\
import asyncio
import random


async def solve(case, run):
    await asyncio.sleep({seconds} * random.Random(run.seed).uniform(0.5, 1.5))
    return case.target
"""


@dataclass(frozen=True, slots=True)
class SuiteOptions:
    """What differs between two suites of one kind."""

    runs: int
    depth: int = DEPTH
    bound: int = 512
    lease: str = "30s"
    url: str = ""
    """Of the endpoint, for `model`."""
    waits: float = 0.0
    """Seconds that the solver sleeps, give or take a half; then it does nothing else."""
    solver: str = ""
    """The text of another solver; empty: the kind's."""


def make_suite(directory: Path, kind: Kind, options: SuiteOptions) -> Suite:
    """Write a suite into a new directory, and load it."""
    directory.mkdir(parents=True)
    text = _SUITE.format(
        kind=kind, bound=options.bound, in_flight=max(1024, options.bound), depth=options.depth, lease=options.lease
    )
    if kind is Kind.MODEL:
        text += _MODEL.format(url=options.url)
    if kind is Kind.FANOUT:
        text += _TOOL
    solver = options.solver or (_WAITING.format(seconds=options.waits) if options.waits else _SOLVERS[kind])
    (directory / "suite.toml").write_text(text)
    (directory / "solver.py").write_text(solver)
    cases = (json.dumps({"id": f"c{number}", "input": "Say it.", "target": "x"}) for number in range(options.runs))
    (directory / "cases.jsonl").write_text("\n".join(cases) + "\n")
    return load_suite(directory)


_ALWAYS = ("transcript.lease", "transcript.seal", "judge.commit", "histogram.score")
_PER_RUN: Mapping[Kind, Mapping[str, int]] = {
    Kind.NOOP: {"admission.acquire": 1},
    Kind.MODEL: {
        "admission.acquire": 2,  # a place among the runs, and one at the endpoint
        "completion.open": 1,
        "completion.bind": 1,
        "ledger.admit": 1,
        "ledger.done": 1,
    },
    Kind.FANOUT: {
        "admission.acquire": 1,
        "join.admit": 1,
        "join.commit": 1,
        **dict.fromkeys(("outbox.put", "outbox.claim", "outbox.complete", "indoubt.prepare", "indoubt.bind"), _TOOLS),
    },
}


def expected(kind: Kind, runs: int) -> dict[str, int]:
    """How often the history must say that an operation was committed when each run ended as it should, and once."""
    counts = {**dict.fromkeys(_ALWAYS, 1), **_PER_RUN[kind]}
    return {name: count * runs for name, count in counts.items()}
