"""The planner's steps on a server: a batch from its declaration to its close, see `bus.port`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from bus.errors import ReplyError
from bus.port import LIMITS, BatchSpec, Group, NextRuns
from bus.redis_steps import Steps
from bus.types import BatchId, Decision, EntryId, RunId, Verb

__all__ = ["PlannerSteps"]

_ADMIT_AT_ONCE = 100  # runs in one script: bounded work, and one message a hundred runs is nothing beside them


class PlannerSteps(Steps):
    """See the module's text."""

    async def create(self, spec: BatchSpec, *, announced: bool = True) -> Decision:
        """Declare a batch: `commit`, `duplicate` for the same declaration, `reject batch_mismatch` for another.

        `reject pruned`: there was a batch of that name; the answer's `tombstone` says where its archive is.
        `announced`: idle roles are woken; not for one that is only played with.
        """
        text = json.dumps(spec.as_fields(), sort_keys=True, ensure_ascii=False)
        # Where a copy of the suite lies is not part of what a batch is.
        declared = json.dumps(spec.as_fields() | {"suite_path": ""}, sort_keys=True)
        limits: dict[str, Any] = {name: value for name, value in spec.limits.items() if name in LIMITS}
        decision = await self._step(
            "create",
            spec.batch,
            declared=hashlib.sha256(declared.encode()).hexdigest(),
            incarnation=self._runtime.token(),
            bins=json.dumps(spec.bins),
            intended=spec.intended,
            quorum=spec.quorum,
            bound=spec.bound,
            max_in_flight=spec.max_in_flight,
            max_deliveries=spec.max_deliveries,
            reclaim_ms=spec.reclaim_ms,
            judge_policy=spec.judge_policy,
            replay_budget=spec.replay_budget,
            spec=text,
            source=spec.source or None,
            **limits,
        )
        if announced and decision.verb is Verb.COMMIT:
            await self._bell.ring(spec.batch)
        return decision

    async def admit(self, batch: BatchId, next_runs: NextRuns) -> Decision:
        """Admit the next runs while there is room. Answer: admitted, cursor, why_stopped."""
        next_runs, own = next_runs.first(_ADMIT_AT_ONCE), self.keys(batch)
        keys = {"rows": [own.run(run) for run in next_runs.runs]}
        return await self._let_in("admit", batch, next_runs, keys, next_runs.as_fields())

    async def adopt(self, batch: BatchId, source: BatchId, next_runs: NextRuns) -> Decision:
        """Take over the next runs of a closed batch, as they were sealed there."""
        next_runs, own, theirs = next_runs.first(_ADMIT_AT_ONCE), self.keys(batch), self.keys(source)
        rows = [side.run(run) for side in (own, theirs) for run in next_runs.runs]
        keys, fields = {"source": theirs.batch_row, "rows": rows}, {"source": source, **next_runs.as_fields()}
        return await self._let_in("adopt", batch, next_runs, keys, fields)

    async def _let_in(
        self, step: str, batch: BatchId, next_runs: NextRuns, keys: Mapping[str, object], fields: Mapping[str, Any]
    ) -> Decision:
        return await self._step(
            step,
            batch,
            extra_keys=keys,
            extra_argv={"items": [*next_runs.runs, *(entry.id for entry in next_runs.read)]},
            command_id=self._runtime.token(),
            **fields,
        )

    async def abandon(self, batch: BatchId, cursor: int, runs: Sequence[RunId], why: str) -> Decision:
        """Name the next runs from `cursor` on holes: they were never admitted."""
        runs = runs[:_ADMIT_AT_ONCE]
        rows = {"rows": [self.keys(batch).run(run) for run in runs]}
        return await self._step(
            "abandon",
            batch,
            extra_keys=rows,
            extra_argv={"runs": list(runs)},
            cursor=cursor,
            runs=len(runs),
            why=why,
        )

    async def requeue(self, batch: BatchId, group: Group, run: RunId, entry: EntryId) -> Decision:
        """Emit a run's message anew when its group no longer knows the one that its row names."""
        stream = {"stream": self.keys(batch).stream(group.stream)}
        return await self._step("requeue", batch, run=run, extra_keys=stream, group=group.value, entry=entry)

    async def rebind(self, batch: BatchId, run: RunId, epoch: int, candidate: str, judge: str) -> Decision:
        """Bind a parked run's score to another judge; emits its score message anew."""
        return await self._step(
            "rebind",
            batch,
            run=run,
            epoch=epoch,
            candidate=candidate,
            judge=judge,
            command_id=self._runtime.token(),
        )

    async def parked(self, batch: BatchId) -> list[RunId]:
        """Runs whose score waits for a rebind or a person."""
        return sorted(RunId(item.decode()) for item in await self._link.command("SMEMBERS", self.keys(batch).review))

    async def close(self, batch: BatchId, snapshot_id: str, accepted: int) -> Decision:
        """Close the histogram over the snapshot computed from the rows. To be confirmed before it is told of."""
        return await self._step("close", batch, snapshot_id=snapshot_id, accepted=accepted)

    async def confirm(self, batch: BatchId) -> None:
        """Wait until all that was applied for a batch would survive what this bus's durability is about.

        Who may only read waits for nothing: whoever closed the batch has.
        """
        try:
            await self._commit.confirmed()
        except ReplyError as error:
            if error.code != "NOPERM":
                raise
