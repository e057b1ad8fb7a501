"""`docs/suite.md`: every field of a suite, with what may stand there and what is said below it in the code."""

from __future__ import annotations

import inspect
from typing import Final

from workers.declaration import Suite
from workers.docs.attributes import said_of_fields
from workers.docs.kinds import default_of, kind_of
from workers.inspecting.table import InspectTable
from workers.judging.table import IdentityTable, JudgeModelTable
from workers.modelling.table import ModelTable
from workers.scorer_table import ScorerTable
from workers.tables import GateTable, JudgeTable, LimitsTable, ShadowTable, SolverTable, Table, WorkspaceTable
from workers.tools.tables import McpTable, ToolTable

__all__ = ["TABLES", "suite_fields"]

TABLES: Final[tuple[type[Table], ...]] = (
    Suite,
    SolverTable,
    WorkspaceTable,
    ModelTable,
    ToolTable,
    McpTable,
    ScorerTable,
    JudgeModelTable,
    IdentityTable,
    JudgeTable,
    LimitsTable,
    GateTable,
    ShadowTable,
    InspectTable,
)
"""In the order of the page."""

_HEAD: Final = """\
# Reference: a suite

A directory with a `suite.toml`, or with a `suite.py` that says `suite = Suite(...)` (`from workers.suite import Suite`)
with the same fields. A field that does not exist is an error that names the nearest one that does.

- A *duration* is text with a unit: `"500ms"`, `"10s"`, `"2m"`, `"1h"`; a bare number is seconds.
- A *size* likewise: `"500kB"`, `"10MB"`, `"1GiB"`; a bare number is bytes.
- A *path* lies inside the suite's directory: all that it holds is part of the suite's digest.
- A *variable* is one of the environment of whoever runs it. Keys stand there, and never in a suite.

More on: [models](models.md), [tools](tools.md), [judges](judges.md), [the gate](ci.md), [Inspect tasks](inspect.md),
[clusters](cluster.md).
"""


def suite_fields() -> str:
    """The page, without its first comment."""
    return "\n".join([_HEAD, *map(_section, TABLES)])


def _section(table: type[Table]) -> str:
    title = f"## `[{table.table}]`" if table.table else "## At the head of the file"
    words = " ".join((inspect.getdoc(table) or "").split())
    if table is Suite:
        words = "What follows are tables of their own, `[solver]` to `[inspect]`."
    if table is JudgeModelTable:
        return f"{title}\n\n{words} It has the fields of [`[model]`](#model).\n"
    if table is InspectTable:
        words = "An Inspect task in the place of cases, solver and scorer. What is left out is as the task says."
    said, rows = said_of_fields(table), []
    for name, field in table.model_fields.items():
        rows.append(
            f"| `{field.alias or name}` | {kind_of(field)} | {default_of(field)} | {_cell(said.get(name, ''))} |"
        )
    return f"{title}\n\n{words}\n\n| field | what | default | |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
