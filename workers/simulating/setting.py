"""The suites that are simulated: some of our own, and what a user's suite declares.

Of a user's suite come its cases, trials, bound, lease, quorum, limits, and which planes it has. None of its code runs:
solver, model, tools and scorer are those of `workers.simulating.acting`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from bus.types import BatchId, Digest, Plane
from workers.cases import Case, Json
from workers.declaration import Place
from workers.modelling.table import ModelTable, Target
from workers.simulating.judging import scorer_table
from workers.suite import Suite
from workers.tools.tables import ToolTable

__all__ = ["BATCH", "BUILT_IN", "Setting", "built_in", "of_suite"]

BATCH: Final = BatchId("simulated")

_MODULE: Final = "workers.simulating.acting"
_TARGET: Final = Target("http://simulated", "simulated")
_CASES: Final = 6
"""Of a user's suite that many are simulated: what may go wrong between runs needs no more."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A suite, ready to be simulated."""

    name: str
    suite: Suite
    plane: Plane = Plane.LIVE

    @property
    def patience(self) -> float:
        """Seconds in which a batch must end once nothing goes wrong any more."""
        suite = self.suite
        bounds = [tool.bound_ms / 1000 for tool in suite.tools.values() if tool.effects == "outside"]
        judge = suite.scorer.model if suite.scorer.kind == "model" else None
        reclaims = [table.reclaim for table in (suite.model, judge) if table is not None]
        # A call in doubt waits for its bound, and its undo for another; so does each run for the one before it.
        waits = 2 * max(bounds, default=0.0) + sum(reclaims) + suite.timeout
        waits += 0.0 if judge is None else suite.scorer.timeout + suite.judging.review
        return 30 * suite.lease + (1 + suite.intended) * waits


# --- our own ----------------------------------------------------------------------------------------------

_TOOLS: Final[Mapping[str, Mapping[str, Any]]] = {
    "book": {
        "python": f"{_MODULE}:act", "effects": "outside", "inverse": "unbook", "timeout": 0.6, "bound": 3.0, "slots": 1,
    },
    "unbook": {"python": f"{_MODULE}:undo", "effects": "outside", "timeout": 0.6, "bound": 3.0},
    "look": {"python": f"{_MODULE}:look", "effects": "none", "timeout": 0.6},
    "far": {"python": f"{_MODULE}:look", "effects": "none", "remote": True, "timeout": 0.6},
}  # fmt: skip
_MODEL: Final[Mapping[str, Any]] = {
    "base_url": "http://simulated/v1", "name": "simulated", "slots": 1, "retries": 4, "reclaim": 4.0, "timeout": 8.0,
    "first_token": 8.0, "idle": 8.0, "expected": 60,
}  # fmt: skip

_CROWDED: Final = {**_TOOLS, "book": {**_TOOLS["book"], "slots": 3}}
"""More calls at once than the shadow plane below has room for beside its runs."""
_JUDGED: Final = scorer_table(("pass", "fail"), {**_MODEL, "retries": 2})

_DECLARED: Final[Mapping[str, Mapping[str, Any]]] = {
    "plain": {"does": "note", "cases": 5, "bound": 3},
    "model": {"does": "note model model", "cases": 4, "bound": 3, "model": _MODEL, "budget": 4_000},
    "tools": {"does": "tools note tools", "cases": 3, "bound": 2, "tools": _TOOLS},
    "disks": {"does": "write note", "cases": 4, "bound": 3, "workspace": {}},
    "fresh": {"does": "note model", "cases": 4, "bound": 2, "model": _MODEL, "resume": "fresh"},
    "all": {
        "does": "note model tools write", "cases": 3, "bound": 3, "model": _MODEL, "tools": _TOOLS, "workspace": {},
    },
    "judged": {
        "does": "note model", "cases": 4, "bound": 3, "model": _MODEL, "budget": 6_000, "scorer": _JUDGED,
        "judge": {"policy": "review", "review": 3.0},
    },
    "rejudged": {
        "does": "note write", "cases": 4, "bound": 3, "workspace": {}, "scorer": _JUDGED,
        "judge": {"policy": "replay", "replay_budget": 2, "review": 3.0},
    },
    "shadow": {
        "does": "note model tools", "cases": 4, "bound": 3, "model": _MODEL, "tools": _CROWDED,
        "plane": Plane.SHADOW, "shadow": {"capacity": 3, "budget": 4_000},
    },
}  # fmt: skip

BUILT_IN: Final = tuple(_DECLARED)


@cache
def built_in(name: str) -> Setting:
    """One of our own suites."""
    declared = dict(_DECLARED[name])
    does, count = str(declared.pop("does")), int(declared.pop("cases"))
    ids = [f"case-{number}" for number in range(1, count + 1)]
    fields = {"lease": 1.0, "max_deliveries": 12, "timeout": 60.0, "quorum": 1, "concurrency": 2, **declared}
    plane = fields.pop("plane", Plane.LIVE)
    return _made(name, ids, does, fields, plane)


def of_suite(suite: Suite, cases: int = _CASES) -> Setting:
    """What a user's suite declares, over its first `cases` cases."""
    does = ["note"]
    fields: dict[str, Any] = {
        name: getattr(suite, name)
        for name in (
            "trials", "bins", "bound", "max_in_flight", "concurrency", "lease", "max_deliveries", "timeout", "budget",
            "resume",
        )
    }  # fmt: skip
    ids = [case.id for case in suite.cases[:cases]]
    runs = len(ids) * suite.trials
    fields["quorum"] = max(1, suite.quorum_runs * runs // suite.intended)
    if suite.workspace is not None:
        fields["workspace"] = {"ignore": suite.workspace.ignore}
        does.append("write")
    if suite.model is not None:
        fields["model"] = _simulated_model(suite.model)
        does += ["model", "model"]
    if suite.scorer.kind == "model":
        fields["scorer"] = scorer_table(suite.bins, _simulated_model(suite.scorer.model))
        fields["judge"] = suite.judging.model_dump(exclude_unset=True)
    if suite.tools:
        fields["tools"] = {name: _simulated(tool) for name, tool in suite.tools.items()}
        does += ["tools", "tools"]
    return _made(suite.name, ids, " ".join(does), fields)


def _simulated_model(table: ModelTable) -> dict[str, Any]:
    told = table.model_dump(include={"slots", "retries", "timeout", "first_token", "idle", "reclaim"})
    return {**_MODEL, **told, "expected": min(table.expected, 200)}


def _simulated(tool: ToolTable) -> dict[str, Any]:
    functions = {"outside": "act", "none": "look", "workspace": "make"}
    told = tool.model_dump(include={"effects", "remote", "inverse", "timeout", "bound", "slots"}, exclude_none=True)
    return {"python": f"{_MODULE}:{functions[tool.effects]}", **told}


def _made(name: str, ids: Sequence[str], does: str, fields: Mapping[str, Any], plane: Plane = Plane.LIVE) -> Setting:
    tools: Mapping[str, Mapping[str, Any]] = fields.get("tools", {})
    inverses = {table["inverse"] for table in tools.values() if table.get("inverse")}
    tools = {
        tool: {**table, "python": f"{_MODULE}:undo"} if tool in inverses else table for tool, table in tools.items()
    }
    callable_ = " ".join(tool for tool in tools if tool not in inverses)
    lease = float(fields["lease"])
    cases = []
    for number, one in enumerate(ids):
        answer = f"answer {number}"
        told: dict[str, Json] = {"does": does, "answer": answer, "tools": callable_, "lease": lease}
        told |= {"fickle": True} if number % 4 == 2 else {}  # noqa: PLR2004 - one in four
        told |= {"raises": True} if number % 8 == 7 else {}  # noqa: PLR2004
        cases.append(Case(one, f"question {number}", answer if number % 3 != 1 else "another answer", told))
    declared = Suite.model_validate(
        {
            "scorer": {"kind": "python", "python": f"{_MODULE}:score"},
            **fields,
            "name": name,
            "cases": [{"id": case.id, "input": case.input} for case in cases],
            "tools": tools,
            "solver": {"python": f"{_MODULE}:solve"},
        }
    )
    told_whole = declared.model_dump(mode="json", exclude={"declared_cases"}, exclude_unset=True)
    digest = hashlib.sha256(json.dumps([told_whole, ids], sort_keys=True).encode()).hexdigest()
    root = Path("/simulated")  # nowhere: nothing of it is read
    by_id = {case.id: case for case in cases}
    target = None if declared.model is None else _TARGET
    place = Place(root, root / "suite.toml", tuple(cases), Digest(digest), by_id, (), target, _TARGET)
    return Setting(name, declared.at(place), plane)
