"""The table `[inspect]` of a suite: an Inspect task in the place of cases, solver and scorer.

    [inspect]
    task = "arithmetic.py@addition"
    model = "openai/gpt-4o-mini"

Everything else of a suite holds as it is: quorum, bound, lease, concurrency, gate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PlainValidator

from workers.tables import Count, Seconds, Table, Text, Trials

__all__ = ["InspectTable", "filled"]

_TAKEN = ("cases", "trials", "solver", "scorer", "workspace", "tools", "mcp", "model", "bins")
"""What the task says itself, or has its own of."""
_CONCURRENCY = 8
_TIMEOUT = 3_600.0  # seconds: an agent's time is the task's to limit (`time_limit`); this is against one that hangs


def _task(spec: str) -> str:
    if not re.fullmatch(r"[^/@?:\\]+\.py@([A-Za-z_][A-Za-z0-9_]*)?", spec):
        raise ValueError(f'{spec!r} names no task in the suite directory (write "file.py@task")')
    return spec


def _arguments(written: object) -> dict[str, Any]:
    if not isinstance(written, Mapping) or not all(isinstance(name, str) and name.isidentifier() for name in written):
        raise ValueError("args must be a table of argument and value")
    return dict(written)


def _finite(number: object) -> float:
    if isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number):
        return float(number)
    raise ValueError(f"{number!r} is not a number")


class InspectTable(Table):
    """See the module's text. What is left out is as the task says."""

    table = "inspect"

    task: Annotated[Text, AfterValidator(_task)]
    """`file.py@task`, beside the suite file."""
    args: Annotated[dict[str, Any], PlainValidator(_arguments)] = Field(default_factory=dict)
    """The task's arguments."""
    model: Text | None = None
    """As Inspect names it; when left out INSPECT_EVAL_MODEL. "none": the task asks none, or names its own."""
    epochs: Trials | None = None
    """Runs of each sample."""
    limit: Count | None = None
    """Only so many samples, the first ones."""
    scorer: Text | None = None
    """Whose score decides whether a run passes; the task's first when left out."""
    key: Text | None = None
    """Of a score that is a dict, which value decides; all of them have to pass when left out."""
    threshold: Annotated[float, PlainValidator(_finite)] = 1.0
    """A run passes when its value, as a number (C is 1, P 0.5, I and N 0), is at least this."""
    score_timeout: Seconds = 600.0
    """Wall time of one run's scoring; then it is the hole `scorer_error`."""


def filled(written: object) -> object:
    """A suite as it was written, with what follows from its table `[inspect]`. Raises ValueError."""
    if not isinstance(written, Mapping) or written.get("inspect") is None:
        return written
    table = written["inspect"]
    if both := [name for name in _TAKEN if name in written]:
        raise ValueError(f"{both[0]}: is the task's own in a suite with [inspect]")
    table = table if isinstance(table, InspectTable) else InspectTable.model_validate(table)
    return {
        "concurrency": _CONCURRENCY,
        "timeout": _TIMEOUT,
        **written,
        "inspect": table,
        "cases": (),
        "solver": {"python": "workers.inspecting.solver:InspectSolver"},
        "scorer": {
            "kind": "python",
            "python": "workers.inspecting.scorer:InspectScorer",
            "timeout": table.score_timeout,
        },
    }
