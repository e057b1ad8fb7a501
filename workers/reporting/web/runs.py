"""The table of runs: its first rows as HTML for whoever runs no scripts, and all of them as data for the script.

The columns stand here once. The script gets their order with the data, and writes its cells as `cells` does; a test
holds the two together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from workers.reporting.facts import RunFacts
from workers.reporting.web.words import count, duration

__all__ = ["COLUMNS", "PAGE", "Column", "as_data", "cells", "embedded", "link", "look"]

PAGE: Final = 50
"""Rows of one page of the table."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `key` names its value in the data, `kind` says how it is written and sorted."""

    key: str
    title: str
    kind: str
    hint: str = ""


COLUMNS: Final = (
    Column("run", "Run", "run"),
    Column("outcome", "Outcome", "outcome", "its bin, why it is a hole, or where it is"),
    Column("value", "Value", "text", "what the scorer signed"),
    Column("deliveries", "Deliveries", "count", "leases that were granted for it"),
    Column("refusals", "Refused", "count", "commands about it that were refused"),
    Column("spent", "Tokens", "count", "billed for its requests"),
    Column("admitted", "Admitted", "ms", "after the batch began"),
    Column("took", "Took", "ms", "from its admission to its end"),
    Column("worker", "Worker", "text", "the last one that was given it"),
)
_HALF: Final = re.compile("[\ud800-\udfff]")
_MORE: Final = ("case", "trial", "bin", "hole", "durable", "leased", "sealed", "ended", "scorer", "look")


def look(run: RunFacts, first_bin: str) -> str:
    """How its outcome is coloured: `pass`, `fail`, `hole` or `rest`."""
    if run.hole is not None:
        return "hole"
    if run.bin is None:
        return "rest"
    return "pass" if run.bin == first_bin else "fail"


def link(run: str) -> str:
    """Where a run opens on this page: as `encodeURIComponent` writes it, so that the script can compare."""
    return "#run=" + quote(_HALF.sub("\N{REPLACEMENT CHARACTER}", run), safe="!*'()")


def cells(run: RunFacts) -> tuple[str, ...]:
    """What the columns show, as text."""
    values = _values(run)
    return tuple(_written(values[column.key], column.kind) for column in COLUMNS)


def as_data(runs: Sequence[RunFacts], first_bin: str, bins: Iterable[str]) -> dict[str, Any]:
    """All runs for the script: a list of values each, named once."""
    fields = [column.key for column in COLUMNS] + list(_MORE)
    rows = []
    for run in runs:
        values = _values(run) | {"look": look(run, first_bin)}
        rows.append([values[field] for field in fields])
    columns = [[column.key, column.kind] for column in COLUMNS]
    return {"page": PAGE, "columns": columns, "fields": fields, "bins": list(bins), "rows": rows}


def embedded(value: object) -> str:
    """JSON that no HTML parser takes for anything but text, whatever is in it."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _values(run: RunFacts) -> dict[str, Any]:
    took = None if run.ended_ms is None or run.admitted_ms is None else run.ended_ms - run.admitted_ms
    return {
        "run": run.run,
        "outcome": f"hole: {run.hole}" if run.hole is not None else run.state,
        "value": run.value,
        "deliveries": run.deliveries,
        "refusals": run.refusals,
        "spent": run.spent,
        "admitted": run.admitted_ms,
        "took": took,
        "worker": run.worker,
        "case": run.case,
        "trial": run.trial,
        "bin": run.bin,
        "hole": run.hole,
        "durable": run.durable,
        "leased": run.leased_ms,
        "sealed": run.sealed_ms,
        "ended": run.ended_ms,
        "scorer": run.scorer,
    }


def _written(value: Any, kind: str) -> str:  # noqa: ANN401 - a cell holds anything
    if kind == "ms":
        return duration(value)
    return count(value) if kind == "count" else str(value)
