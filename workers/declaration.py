"""The suite object: what a suite file declares, and, once it is loaded, where it lies and which cases it has.

A Python suite makes one (`suite = Suite(...)`), a TOML file is read into one; `workers.suite.load_suite` binds
it to its directory. Before that, `cases`, `digest` and all that follows from them are not there to be asked.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field, PlainValidator, PrivateAttr, model_validator

from bus.errors import InputError
from bus.nearest import nearest
from bus.partitions import MOST_PARTS
from bus.types import MAX_INT, Digest, RunId
from workers.cases import Case
from workers.field_map import FieldMap
from workers.inspecting.table import InspectTable, filled
from workers.judging.binding import Binding
from workers.modelling.table import ModelTable, Target
from workers.quantities import share_of
from workers.scorer_table import ScorerTable
from workers.tables import (
    Count,
    GateTable,
    JudgeTable,
    LimitsTable,
    Seconds,
    ShadowTable,
    SolverTable,
    Table,
    Text,
    Trials,
    WorkspaceTable,
)
from workers.tools.tables import McpServers, Tools, check_tools

if TYPE_CHECKING:
    from workers.inspecting.loading import Loaded

__all__ = ["Place", "Suite"]


_MOST_OF_FLOOR = 20_000  # bytes of case ids: a declaration travels in an envelope, of 64 kB at most


def _name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", name):
        raise ValueError(f"{name!r} is not a name (letters, digits, '.', '_' and '-', at most 100)")
    return name


def _bins(bins: tuple[str, ...]) -> tuple[str, ...]:
    for each in bins:
        _name(each)
    if len(bins) < 2 or len(set(bins)) < len(bins):  # noqa: PLR2004
        raise ValueError("two or more different bins are needed, the first is the one that passes")
    return bins


def _quorum(written: object) -> int | str:
    if isinstance(written, str):
        share_of(written, 1)
        return written
    if isinstance(written, int) and not isinstance(written, bool) and written >= 1:
        return written
    raise ValueError(f'{written!r} is not a quorum (write a number of runs, at least 1, or "50%")')


def _lease(seconds: float) -> float:
    if not 0.1 <= seconds <= 3600:  # noqa: PLR2004
        raise ValueError(f"{seconds:g} s is not a lease time (from 100ms to 1h)")
    return seconds


def _cases(written: object) -> str | tuple[Mapping[str, object], ...]:
    if isinstance(written, str) and written:
        return written
    if isinstance(written, list | tuple):
        tables = tuple(asdict(case) if isinstance(case, Case) else case for case in written)
        if all(isinstance(table, Mapping) for table in tables):
            return tables
    raise ValueError("must name a file inside the suite directory, or be a list of tables")


def _fields(written: dict[str, str]) -> dict[str, str]:
    FieldMap.checked(written)
    return written


@dataclass(frozen=True, slots=True)
class Place:
    """What loading adds to a declaration."""

    root: Path
    source: Path
    cases: tuple[Case, ...]
    digest: Digest
    by_id: Mapping[str, Case]
    not_counted: tuple[str, ...]
    """Patterns of what in `root` is no part of the suite."""
    target: Target | None = None
    """The model, where the suite or the environment names one."""
    judge: Target | None = None
    """Likewise the model that judges."""
    task: Loaded | None = None
    """The Inspect task, of a suite with `[inspect]`."""


class Suite(Table):
    """A suite. Durations are in seconds; see the tables for theirs."""

    name: Annotated[str, AfterValidator(_name)] = ""
    """When left out, loading makes one of the directory's."""
    declared_cases: Annotated[str | tuple[Mapping[str, object], ...], PlainValidator(_cases)] = Field(alias="cases")
    """JSON lines, CSV or Parquet with `id`, `input`, `target` and `metadata`; or the same as tables, in the suite."""
    fields: Annotated[dict[str, Text], AfterValidator(_fields)] = Field(default_factory=dict)
    """Which column of the file of cases is which field: `{ id = "qid", input = "{context} {question}" }`."""
    trials: Trials = 1
    """Runs of each case."""
    quorum: Annotated[int | str, PlainValidator(_quorum)] = "50%"
    """Runs that must be scored for the batch to have a number: a count, or a share of all."""
    bins: Annotated[tuple[str, ...], AfterValidator(_bins)] = ("pass", "fail")
    """What a score can be. The first passes; a scorer's plain False is the second."""
    bound: Count = 64
    """Runs admitted and not yet ended, at most."""
    max_in_flight: Count = 256
    """Sealed runs being scored at once, at most."""
    concurrency: Count = 1
    """Runs that one worker process drives at a time; a scorer that only compares two texts takes up to four times as
    many."""
    lease: Annotated[Seconds, AfterValidator(_lease)] = 10.0
    """Silence after which a holder is suspected."""
    max_deliveries: Count = 5
    """Attempts at a run; then it is the hole `poison`."""
    timeout: Seconds = 60.0
    """Wall time of one run's solver; then it is the hole `solver_timeout`. Waiting for room does not count."""
    budget: Annotated[int, Field(strict=True, ge=1, le=MAX_INT)] | None = None
    """Tokens that the whole batch may spend, prompts and answers; then its runs are the hole `over_budget`."""
    partitions: Annotated[int, Field(strict=True, ge=1, le=MOST_PARTS)] = 1
    """Batches that the runs and the limits are dealt out among: for a cluster, where one primary carries a batch."""
    resume: Literal["fresh", "prefix"] | None = None
    """How a run goes on after its worker died: `prefix` answers it from what was written until then, `fresh` starts a
    new conversation. When left out: fresh where it wrote to its workspace, which nobody restores, else prefix."""
    ignore: tuple[Text, ...] = ()
    """Patterns of files in the directory that are no part of the suite, nor of its digest."""
    solver: SolverTable
    workspace: WorkspaceTable | None = None
    """None: a run works in an empty directory, of which nothing is sealed."""
    model: ModelTable | None = None
    """None: `run.model` is an error."""
    tools: Tools = Field(default_factory=dict)
    """What `run.tools` may call, by name."""
    mcp: McpServers = Field(default_factory=dict)
    """Servers that tools are taken from, by name."""
    scorer: ScorerTable
    inspect: InspectTable | None = None
    """An Inspect task in the place of cases, solver and scorer."""
    limits: LimitsTable = LimitsTable()
    judging: JudgeTable = Field(default=JudgeTable(), alias="judge")
    gate: GateTable = GateTable()
    shadow: ShadowTable = ShadowTable()

    _place: Place | None = PrivateAttr(None)

    @model_validator(mode="before")
    @classmethod
    def _of_a_task(cls, written: object) -> object:
        return filled(written)

    @model_validator(mode="after")
    def _tools_fit(self) -> Suite:
        check_tools(self.tools, self.mcp)
        return self

    @model_validator(mode="after")
    def _fields_fit(self) -> Suite:
        if self.fields and not isinstance(self.declared_cases, str):
            raise ValueError("fields is for cases that stand in a file; these stand in the suite, by their own names")
        return self

    @model_validator(mode="after")
    def _grades_fit(self) -> Suite:
        for grade, bin_ in (self.scorer.grades or {}).items():
            if bin_ not in self.bins:
                bins = ", ".join(self.bins)
                raise ValueError(
                    f"scorer.grades: {grade!r} is of the bin {bin_!r} (the bins are {bins}: others are named in `bins`)"
                )
        return self

    def at(self, place: Place) -> Suite:
        """This declaration, bound to where it lies."""
        bound = self.model_copy(update={"name": self.name or _name_of(place.root)})
        bound._place = place
        return bound

    @property
    def place(self) -> Place:
        """Where it lies. Raises `RuntimeError` on a declaration that nobody loaded."""
        private = self.__pydantic_private__  # asked for several times a run, and `self._place` is looked for in layers
        place: Place | None = private["_place"] if private else None
        if place is None:
            raise RuntimeError("this suite was declared but not loaded: use load_suite")
        return place

    @property
    def root(self) -> Path:
        """Its directory, absolute, links resolved."""
        return self.place.root

    @property
    def source(self) -> Path:
        """Its file, as it was named: for messages."""
        return self.place.source

    @property
    def cases(self) -> tuple[Case, ...]:
        """Its cases, in the order of the data."""
        return self.place.cases

    @property
    def digest(self) -> Digest:
        """What it is known by: the same for the same files and the same declaration, wherever it lies."""
        return self.place.digest

    @property
    def intended(self) -> int:
        """Runs in all: the denominator."""
        return len(self.cases) * self.trials

    @property
    def first_of(self) -> int | None:
        """Runs that it would have with all its cases; None when it has them."""
        beyond = 0 if self.place.task is None else self.place.task.left_out  # its limit is a part of what it is
        whole = (len(self.place.by_id) + beyond) * self.trials
        return whole if whole != self.intended else None

    def first(self, cases: int) -> Suite:
        """The same with its first cases only. Its digest stays: a batch of them is made from the same files."""
        return self._of(self.cases[:cases])

    def chosen(self, ids: Collection[str]) -> Suite:
        """The same with these cases only, in its own order. Raises InputError for one that it does not have."""
        for name in ids:
            if name not in self.place.by_id:
                case = name.rpartition("#")[0]  # of one run
                near = case if case in self.place.by_id else nearest(name, self.place.by_id)
                raise InputError(
                    f"there is no case {name!r}", file=self.source, remedy=near and f"did you mean {near!r}?"
                )
        chosen = frozenset(ids)
        if sum(len(name.encode()) for name in chosen) > _MOST_OF_FLOOR:
            raise InputError(
                f"{len(chosen):,} cases are more than a batch can name", remedy="--limit, or a suite of them"
            )
        return self._of(tuple(case for case in self.cases if case.id in chosen))

    def made_with(self, intended: int, cases: Collection[str] | None) -> Suite:
        """The same with the cases of a batch that declares so many runs, and these cases unless they are the first."""
        return self.first(intended // self.trials) if cases is None else self.chosen(cases)

    @property
    def chosen_cases(self) -> tuple[str, ...] | None:
        """Which ones it has, if they are not its first; None when they are, or when it has all."""
        here = tuple(case.id for case in self.cases)
        return here if here != tuple(self.place.by_id)[: len(here)] else None

    def _of(self, kept: tuple[Case, ...]) -> Suite:
        if len(kept) == len(self.cases):
            return self
        runs = len(kept) * self.trials
        at_most = {"partitions": min(self.partitions, runs)}  # one case is no more than one partition's
        if isinstance(self.quorum, int):
            at_most["quorum"] = min(self.quorum, runs)
        return self.model_copy(update=at_most).at(replace(self.place, cases=kept))

    @property
    def judged_at_once(self) -> int:
        """Runs that one scorer process judges at a time.

        One that compares two texts waits for the server alone, with four round trips a run. So it takes as many as keep
        a fleet's workers busy; no more than a fourth of what may be scored at once, for the claims of several scorers
        beyond that would be refused.
        """
        compares = self.scorer.kind in ("exact", "includes", "numeric") and self.workspace is None
        return max(self.concurrency, min(4 * self.concurrency, self.max_in_flight // 4) if compares else 0)

    @property
    def quorum_runs(self) -> int:
        """The quorum as a number of runs, at least 1."""
        return self.quorum if isinstance(self.quorum, int) else share_of(self.quorum, self.intended)

    @property
    def gate_rules(self) -> dict[str, float | int | str | list[str]]:
        """What a batch of it declares to its gate: its rules, with the cases that are marked `must_pass`.

        Of some of its cases only they are the same: a floor that is left out was not passed. Raises InputError for a
        case that it does not have, and for more than a declaration can hold.
        """
        rules, asked = self.gate.rules, set(self.gate.must_pass)
        for name in sorted(asked - self.place.by_id.keys()):
            raise InputError(f"gate.must_pass: there is no case {name!r}", file=self.source)
        asked.update(case.id for case in self.place.by_id.values() if case.must_pass)
        if sum(len(name.encode()) for name in asked) > _MOST_OF_FLOOR:
            problem = f"must_pass: {len(asked):,} cases are more than a batch can declare"
            raise InputError(problem, file=self.source, remedy="a floor for many cases is min_pass_rate")
        return rules | ({"must_pass": sorted(asked)} if asked else {})

    @property
    def secret_variables(self) -> frozenset[str]:
        """Variables of the environment whose values are never written anywhere: its keys, and what it hands on."""
        judge = self.scorer.model if self.scorer.kind == "model" else None
        named = {table.key_variable for table in (self.model, judge) if table is not None}
        named.update(self.solver.env, self.scorer.env)
        for tool in self.tools.values():
            named.update(tool.env, tool.headers_env.values())
        for server in self.mcp.values():
            named.update(server.env, server.headers_env.values())
        return frozenset(named)

    @property
    def target(self) -> Target | None:
        """The model that is asked, and where: as the environment stood when the suite was loaded. Raises InputError."""
        if self.model is None or self.place.target is not None:
            return self.place.target
        return self._found(self.model)

    def _found(self, table: ModelTable) -> Target:
        try:
            return table.target()
        except InputError as error:
            raise InputError(error.problem, file=self.source, remedy=error.remedy) from None

    @property
    def candidate(self) -> str:
        """What binds a score to the candidate: an opaque name for all that makes its answers, and the model's own.

        Raises InputError when neither the suite nor the environment names the model that the suite wants.
        """
        bound = self._binding(self.solver, self.workspace, self.limits)
        return bound if self.target is None else f"{bound} {self.target}"

    @property
    def judge_binding(self) -> Binding | None:
        """The model that judges, with all that it is asked; None when another kind of scorer does.

        Raises InputError when neither the suite nor the environment names it.
        """
        if self.scorer.kind != "model":
            return None
        target = self.place.judge or self._found(self.scorer.model)
        return Binding(self._binding(self.scorer, self.limits), target, self.scorer.identity)

    @property
    def judge(self) -> str:
        """What binds a score to the judge: an opaque name for all that makes its verdicts, and the model's own.

        Raises InputError as `judge_binding` does.
        """
        bound = self.judge_binding
        return self._binding(self.scorer, self.limits) if bound is None else str(bound)

    def run_ids(self) -> list[RunId]:
        """Every run, `<case>#<trial>`: the trials of the first case, then of the next."""
        return [RunId(f"{case.id}#{trial}") for case in self.cases for trial in range(1, self.trials + 1)]

    def case_of(self, run: RunId) -> Case:
        """The case of a run. Raises `KeyError` for a run that the suite does not have."""
        case = self.place.by_id[run.rpartition("#")[0]]
        self.trial_of(run)
        return case

    def trial_of(self, run: RunId) -> int:
        """The trial of a run, from 1. Raises `KeyError` for a run that the suite does not have."""
        trial = run.rpartition("#")[2]
        if not re.fullmatch(r"[1-9][0-9]{0,15}", trial) or int(trial) > self.trials:
            raise KeyError(run)
        return int(trial)

    def _binding(self, *tables: Table | None) -> str:
        told = [table and table.model_dump(mode="json", exclude_unset=True) for table in tables]
        return hashlib.sha256(json.dumps([self.digest, *told], sort_keys=True).encode()).hexdigest()[:32]


def _name_of(directory: Path) -> str:
    """A name made of a directory's, whatever characters that has."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", directory.name)[:100].strip("-") or "suite"
