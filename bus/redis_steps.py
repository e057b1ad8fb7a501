"""What every call to the bus on a server needs: keys by the names of the script headers, envelopes, one script a step.

`bus.redis_bus`, `bus.redis_calls` and `bus.redis_tools` add the steps themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import structlog

from bus.artifacts import ArtifactStore
from bus.envelopes import encode
from bus.keys import BatchKeys, mark
from bus.link import Door, Link
from bus.port import Runtime
from bus.port_calls import JUDGE_DESK, MODEL_DESK
from bus.scripts import Script, all_scripts, flatten, script
from bus.together import Together
from bus.tombstones import Tombstone
from bus.types import BatchId, Decision, Durability, Plane, RunId, Verb

__all__ = ["Steps"]

log = structlog.get_logger("evalbus.bus")


class Steps:
    """See the module's text."""

    def __init__(
        self,
        door: Door,
        runtime: Runtime,
        *,
        plane: Plane = Plane.LIVE,
        artifacts: ArtifactStore | None = None,
        patience: float = 60.0,
        lease: float = 10.0,
        durability: Durability = Durability.RELAXED,
        shard: int = 0,
    ) -> None:
        """`artifacts`: where what is too large for the server is kept. `durability`: what is waited for.

        `shard`: whose batches these are; `door` leads to the server that has it.
        """
        self.plane, self.shard = plane, shard
        self._runtime = runtime
        steps = all_scripts("run")
        self._link = Link(
            door, runtime, patience=patience, lease=lease, scripts=steps, durability=durability,
            mark=mark(plane, shard),
        )  # fmt: skip
        self._reader = Link(door, runtime, patience=patience, lease=lease)
        self._artifacts = artifacts
        self._together = Together(self._link)
        self._keys: dict[BatchId, BatchKeys] = {}
        self._scopes: dict[BatchId, dict[str, object]] = {}
        self._turn = 0

    # --- what every call needs ---------------------------------------------------------------------------

    def keys(self, batch: BatchId) -> BatchKeys:
        """The keys of a batch on this plane."""
        if batch not in self._keys:
            self._keys[batch] = BatchKeys(self.plane, batch, self.shard)
        return self._keys[batch]

    def _envelope(self, batch: BatchId, **fields: object) -> bytes:
        return encode({"plane": self.plane.value, "batch": batch, **fields})

    def _scope(self, batch: BatchId, run: RunId | None = None) -> dict[str, object]:
        """Every key that a step may name, by the name that the script headers use."""
        keys = self.keys(batch)
        if batch not in self._scopes:
            self._scopes[batch] = {
                "batch": keys.batch_row,
                "registry": keys.registry,
                "leases": keys.leases,
                "index": keys.index,
                "review": keys.review,
                "history": keys.history,
                "dead": keys.dead,
                "requests": keys.requests,
                "slots": keys.slots,
                "planes": keys.planes,
                "undo_live": keys.undo(Plane.LIVE),
                "undo_shadow": keys.undo(Plane.SHADOW),
                "desk": keys.desk(),
                "desk_model": keys.desk(MODEL_DESK),
                "desk_judge": keys.desk(JUDGE_DESK),
                **{name: keys.stream(name) for name in ("runs", "tools", "scores", "results")},
            }
        if run is None:
            return self._scopes[batch].copy()
        return self._scopes[batch] | {"run": keys.run(run)}

    async def _step(
        self,
        name: str,
        batch: BatchId,
        *,
        run: RunId | None = None,
        extra_keys: Mapping[str, object] | None = None,
        extra_argv: Mapping[str, object] | None = None,
        **fields: object,
    ) -> Decision:
        """One script. A transcript's key is that of the `conversation` among the fields."""
        target = script(f"run.{name}")
        scope = self._scope(batch, run)
        conversation = fields.get("conversation")
        if run is not None:
            fields["run"] = run
            if isinstance(conversation, int):
                scope["transcript"] = self.keys(batch).transcript(run, conversation)
        scope.update(extra_keys or {})
        [decision] = await self._send(target, batch, scope, extra_argv or {}, **fields)
        if decision.verb is not Verb.COMMIT:
            log.info("step.not_committed", step=name, batch=batch, run=run, decision=str(decision))
        return decision

    async def _send(
        self,
        target: Script,
        batch: BatchId,
        scope: Mapping[str, object],
        rest: Mapping[str, object],
        **fields: object,
    ) -> list[Decision]:
        """Call a script with those of the scope's keys that it names, the envelope, and the rest of its arguments.

        The envelope says which life of the server it is for. Where the batch knows another, that is settled first.
        """
        send = self._together_with_others if target.own_keys else self._alone
        decisions = await send(target, batch, scope, rest, fields)
        if decisions and decisions[0].reason == "server_changed" and await self._restarted(batch):
            decisions = await send(target, batch, scope, rest, fields)
        if decisions and decisions[0].reason in ("no_batch", "pruned"):
            await self._say_where_it_went(batch)
        return decisions

    async def _alone(
        self, target: Script, batch: BatchId, scope: Mapping[str, object], rest: Mapping[str, object],
        fields: Mapping[str, object],
    ) -> list[Decision]:  # fmt: skip
        keys = {name: scope[name] for name in (key.removesuffix("…") for key in target.keys)}

        def argv(server: str) -> Mapping[str, object]:
            return {"envelope": self._envelope(batch, server=server or None, **fields), **rest}

        return await self._link.run_many(target, keys, argv)

    async def _together_with_others(
        self, target: Script, batch: BatchId, scope: Mapping[str, object], rest: Mapping[str, object],
        fields: Mapping[str, object],
    ) -> list[Decision]:  # fmt: skip
        named = cast(Mapping[str, str], scope)
        behind = flatten(target.name, target.argv[1:], rest)

        def argv(server: str) -> tuple[str | bytes, ...]:
            return (self._envelope(batch, server=server or None, **fields), *behind)

        shared = tuple([named[key] for key in target.shared_keys])
        return [await self._together.ask(target, shared, tuple([named[key] for key in target.own_keys]), argv)]

    async def tombstone(self, batch: BatchId) -> Tombstone | None:
        """What is left of a batch that was pruned; None for any other."""
        value = await self._link.command("HGET", self.keys(batch).registry, batch)
        return None if value is None else Tombstone.read(value.decode())

    async def _say_where_it_went(self, batch: BatchId) -> None:
        """To whoever comes too late: the batch is over, and this is its proof."""
        tombstone = await self.tombstone(batch)
        if tombstone is not None:
            log.warning(
                "batch.pruned", batch=batch, file=tombstone.file, head=tombstone.head, snapshot=tombstone.snapshot_id
            )

    async def _restarted(self, batch: BatchId) -> bool:
        """Another life of the server: void what the last one granted, in case that it lost what it had answered."""
        target, keys = script("run.restarted"), self.keys(batch)
        decision = await self._link.run(
            target,
            {"batch": keys.batch_row, "history": keys.history},
            lambda server: {"envelope": self._envelope(batch, server=server)},
        )
        log.warning("server.changed", batch=batch, decision=str(decision), floor=decision.answer.get("floor"))
        return decision.applied
