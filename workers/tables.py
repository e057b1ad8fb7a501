"""The tables of a suite file: `[solver]`, `[workspace]`, `[limits]`, `[judge]`, `[gate]`, and what all tables share.

Those of what is asked, or asks, stand apart: `[scorer]`, `[model]`, `[tools]`. Each field is checked where it stands;
what takes the suite's directory or its cases to check is in `workers.suite`. Values are strict: `trials = true` is a
mistake and not one trial. Durations become seconds, sizes bytes. A Python suite may write these objects or plain
dictionaries.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, ClassVar, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from workers.processes.commands import Limits
from workers.quantities import duration, size

__all__ = [
    "MAX_RUNS",
    "Bytes",
    "Count",
    "GateTable",
    "JudgeTable",
    "LimitsTable",
    "Seconds",
    "ShadowTable",
    "SolverTable",
    "Table",
    "Text",
    "Trials",
    "WorkspaceTable",
]

MAX_RUNS: Final = 1_000_000
"""Runs of one batch: each of its processes keeps the names of all."""

Seconds = Annotated[float, BeforeValidator(duration)]
Bytes = Annotated[int, BeforeValidator(size)]
Count = Annotated[int, Field(strict=True, ge=1)]
Trials = Annotated[int, Field(strict=True, ge=1, le=MAX_RUNS)]
Natural = Annotated[int, Field(strict=True, ge=0)]
Share = Annotated[float, Field(strict=True, ge=0, le=1)]
Tolerance = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Flag = Annotated[bool, Field(strict=True)]
Text = Annotated[str, Field(strict=True, min_length=1)]


def _inside(path: str) -> str:
    if path.startswith("/") or ".." in PurePosixPath(path).parts or "\\" in path or "\0" in path:
        raise ValueError(f"{path!r} is not a path inside the suite directory")
    return path


def _variable(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"{name!r} is not the name of an environment variable")
    return name


def _function(spec: str) -> str:
    place, colon, name = spec.rpartition(":")
    if not colon or not place or not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f'{spec!r} does not name a function (write "file.py:function")')
    return _inside(spec) if place.endswith(".py") else spec


Inside = Annotated[Text, AfterValidator(_inside)]
"""A path inside the suite directory, written with `/`."""

Function = Annotated[Text, AfterValidator(_function)]
"""`file.py:name` inside the suite directory, or `package.module:name`."""

Command = Annotated[tuple[Text, ...], Field(min_length=1)]
Variables = tuple[Annotated[Text, AfterValidator(_variable)], ...]


class Table(BaseModel):
    """What all tables share: unknown fields are errors, nothing changes after it was read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    table: ClassVar[str] = ""
    """Its name in the suite file."""


class SolverTable(Table):
    """Who answers: exactly one of `python` and `command`."""

    table = "solver"

    python: Function | None = None
    """An async function `(case, run)` that returns the answer."""
    command: Command | None = None
    """`{python}` `{suite}` `{workspace}` `{prompt_file}` `{id}` are replaced; its output answers."""
    stdin: Flag = True
    """Whether a command gets the case's input on standard input."""
    env: Variables = ()
    """Names of the worker's environment variables that a command gets to see, such as an API key. One that begins with
    `OPENAI_` leads past `[model]`: then the command is not given the way to it."""

    @model_validator(mode="after")
    def _one(self) -> SolverTable:
        if (self.python is None) == (self.command is None):
            raise ValueError("exactly one of python and command is needed")
        check_placeholders(self.command, ("answer_file", "case_file"))
        return self


class WorkspaceTable(Table):
    """The directory that a run works in, and that is sealed with its answer."""

    table = "workspace"

    template: Inside | None = None
    """A directory that is copied into each new workspace; `{id}` is the case's id. None: it starts empty."""
    ignore: tuple[Text, ...] = ("__pycache__", "*.pyc")
    """Patterns of what is neither copied nor sealed."""


class LimitsTable(Table):
    """What one command may use, of the solver, the workspace and the scorer alike."""

    table = "limits"

    cpu: Seconds = 30.0
    """Processor time of one process."""
    memory: Bytes = 10**9
    """Addresses of one process."""
    processes: Count = 64
    """So many more than at its start may its user have; the kernel does not hold root to it."""
    output: Bytes = 10**7
    """Of standard output and of standard error; a command that writes more is killed."""
    file: Bytes = 10**8
    """Size of a file that it writes."""
    open_files: Annotated[int, Field(strict=True, ge=16)] = 256
    """Descriptors of one process; an interpreter needs a few of its own."""

    @property
    def of_commands(self) -> Limits:
        """As `workers.processes.commands` takes them."""
        return Limits(self.cpu, self.memory, self.processes, self.output, self.file, self.open_files)


class JudgeTable(Table):
    """What follows when a score was made under another binding than the run's (fence 6)."""

    table = "judge"

    policy: Literal["reject", "replay", "review"] = "reject"
    """The run is a hole, is judged anew, or waits for a person."""
    replay_budget: Natural = 0
    """replay: how often in a batch; then as reject."""
    review: Seconds = 86_400.0
    """How long a score under `review` waits for somebody; then its run is the hole `unreviewed`."""


class ShadowTable(Table):
    """What a batch on the shadow plane may use, where that is not what a live one may."""

    table = "shadow"

    capacity: Annotated[int, Field(strict=True, ge=2)] | None = None
    """Runs and tool calls in flight at once, together; twice the bound when left out. One place is never a run's."""
    budget: Annotated[int, Field(strict=True, ge=1, le=2**53 - 1)] | None = None
    """Tokens; the suite's budget when left out."""


class GateTable(Table):
    """What the gate asks for; a rule that is left out is not asked."""

    table = "gate"

    min_pass_rate: Share | None = None
    """Of the scored runs, so large a share must pass."""
    max_holes: Natural | None = None
    """So many runs may end without a score."""
    max_cost: Tolerance | None = None
    """In the currency of `price`."""
    price: Tolerance | None = None
    """What a million tokens cost, prompts and answers together."""
    no_worse_than: Inside | None = None
    """A baseline: a snapshot file in the suite's directory, as `evalbus gate BATCH --freeze FILE` writes it."""
    margin: Share | None = None
    """So much may the pass rate be below the baseline's; 0 when left out."""
    confidence: Annotated[float, Field(strict=True, gt=0.5, lt=1)] | None = None
    """None: the difference itself is compared; else its lower bound at this confidence."""
    must_pass: tuple[Text, ...] = ()
    """Cases of which every run must pass, beside those that are marked so where they stand."""

    @model_validator(mode="after")
    def _belong_together(self) -> GateTable:
        if self.max_cost is not None and self.price is None:
            raise ValueError("max_cost needs a price: what a million tokens cost")
        if self.no_worse_than is None and not (self.margin is None and self.confidence is None):
            raise ValueError("margin and confidence are about a baseline: no_worse_than names it")
        return self

    @property
    def rules(self) -> dict[str, float | int | str | list[str]]:
        """The rules that are set, by name."""
        return self.model_dump(mode="json", exclude_defaults=True)


def check_placeholders(command: tuple[str, ...] | None, others: tuple[str, ...]) -> None:
    """Raises ValueError for a command with one of the other commands' `{name}`s: nothing would be put in its place."""
    for name in others:
        if any(f"{{{name}}}" in argument for argument in command or ()):
            raise ValueError(f"{{{name}}} has no meaning in this command")
