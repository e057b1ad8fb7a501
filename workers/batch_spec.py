"""What a batch of a suite declares: its runs, its limits and what it is bound to, as the scripts take them.

Pure: of one suite, in one environment, it is the same each time. So whoever finds a batch there knows whether it is its
own.
"""

from __future__ import annotations

import json

from bus.errors import InputError
from bus.partitions import split
from bus.port import BatchSpec
from bus.types import BatchId, Plane
from bus.values import FREE_HAND_BACKS, UNFIT_ALL
from workers.naming import batch_name
from workers.suite import Suite
from workers.tools.tables import tool_limits

__all__ = ["spec_of", "specs_of"]

_SHORTEST_LIFE = 10_000  # ms; a disk of a process that was merely slow should not be given up


def spec_of(suite: Suite, batch: BatchId, source: BatchSpec | None = None, plane: Plane = Plane.LIVE) -> BatchSpec:
    """What a batch of this suite declares. `source`: the closed batch whose sealed runs it scores anew."""
    limits = _limits_of_scoring(suite) | (_limits_of_work(suite) if source is None else {})
    bound = suite.bound
    if plane is Plane.SHADOW:
        capacity = suite.shadow.capacity or 2 * bound
        # A run that waits for its tool's place holds one itself: if runs could take them all, none would ever end.
        bound = min(bound, capacity - 1)
        limits |= {"capacity": capacity} | ({"budget": suite.shadow.budget} if suite.shadow.budget else {})
    return BatchSpec(
        batch=batch,
        suite=suite.name or "",
        suite_digest=suite.digest,
        suite_path=str(suite.root / suite.source.name),
        intended=suite.intended,
        quorum=suite.quorum_runs,
        bins=tuple(suite.bins),
        bound=bound,
        max_in_flight=suite.max_in_flight,
        max_deliveries=suite.max_deliveries,
        lease_ms=round(suite.lease * 1000),
        judge_policy=suite.judging.policy,
        replay_budget=suite.judging.replay_budget,
        reclaim_ms=_reclaim_ms(suite),
        gate=suite.gate_rules,
        candidate=suite.candidate if source is None else source.candidate,
        judge=suite.judge,
        limits=limits,
        tree_ignore=_sealed_without(suite) if source is None else source.tree_ignore,
        source="" if source is None else source.batch,
        first_of=suite.first_of,
        cases=suite.chosen_cases,
    )


def _sealed_without(suite: Suite) -> tuple[str, ...]:
    return () if suite.workspace is None else suite.workspace.ignore


def _limits_of_work(suite: Suite) -> dict[str, int | str]:
    """What the fences are configured with that not every suite has in its path: `bus.values.LIMITS`."""
    limits: dict[str, int | str] = dict(tool_limits(suite.tools))
    if suite.model is not None:
        limits["compute_retries"] = suite.max_deliveries + FREE_HAND_BACKS + UNFIT_ALL
        limits["model_retries"] = suite.model.retries
        limits["model_slots"] = suite.model.slots
    if suite.workspace is not None:
        # Silence that costs a workspace its life: as long as it takes to suspect its holder, and to do so for sure.
        limits["heartbeat_ms"] = max(round(3_000 * suite.lease), _SHORTEST_LIFE)
    return limits


def _reclaim_ms(suite: Suite) -> int:
    """One time for all desks: the longest that the suite names."""
    tables = [suite.model, suite.scorer.model if suite.scorer.kind == "model" else None]
    return round(1_000 * max((table.reclaim for table in tables if table is not None), default=60.0))


def _limits_of_scoring(suite: Suite) -> dict[str, int | str]:
    """Likewise, of what is in the path of a score; the budget is in both."""
    limits: dict[str, int | str] = {}
    if suite.scorer.kind == "model":
        limits["judge_slots"] = suite.scorer.model.slots
    if suite.budget is not None:
        limits["budget"] = suite.budget
    if suite.workspace is not None:
        limits["schemas"] = json.dumps(["bin/1"])
    return limits


def specs_of(suite: Suite, name: BatchId, plane: Plane) -> list[BatchSpec]:
    """What is declared for a suite: one batch, or its partitions. Raises InputError, also for too many."""
    places = {f"[tools.{tool}] slots": table.slots for tool, table in suite.tools.items() if table.effects != "none"}
    try:
        specs = split(spec_of(suite, name, None, plane), suite.partitions, places)
    except InputError as error:
        raise InputError(error.problem, file=suite.source, remedy=error.remedy) from None
    for spec in specs:
        batch_name(spec.batch)
    return specs
