"""What every call to the bus on a server needs: keys by the names of the script headers, envelopes, one script a step.

`bus.redis_bus` puts the steps themselves together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar, cast

import structlog

from bus.artifacts import ArtifactStore
from bus.bell import Bell
from bus.calling import flatten
from bus.envelopes import Head, encode
from bus.errors import ReplyError
from bus.group_commit import GroupCommit
from bus.imported.looking import CODE, only_for_looking
from bus.keys import BatchKeys, mark
from bus.link import Door, Link
from bus.port import Runtime
from bus.port_calls import JUDGE_DESK, MODEL_DESK
from bus.scripts import Script, script
from bus.together import Together
from bus.tombstones import Tombstone
from bus.types import BatchId, Decision, Durability, Plane, RunId, Verb

__all__ = ["Steps"]

T = TypeVar("T", bound=Decision | list[Decision])

log = structlog.get_logger("evalbus.bus")

_MOST: Final = 128
"""Batches that are spelt out at a time: more than a process mostly serves at once. To spell one anew takes 0.03 ms."""


@dataclass(slots=True)
class _Spelt:
    """What each call for a batch says again, spelt once."""

    keys: BatchKeys
    scope: dict[str, str] = field(default_factory=dict)
    heads: dict[str, Head] = field(default_factory=dict)
    """By the server's run id."""
    shared: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By the script's name."""


class _SpeltBatches(dict[BatchId, _Spelt]):
    """By batch; one that is not there is spelt as it is asked for."""

    def __init__(self, plane: Plane, shard: int) -> None:
        super().__init__()
        self._plane, self._shard = plane, shard

    def __missing__(self, batch: BatchId) -> _Spelt:
        if len(self) >= _MOST:  # the oldest: most batches of a process that lives long have ended
            del self[next(iter(self))]
        spelt = self[batch] = _Spelt(BatchKeys(self._plane, batch, self._shard))
        return spelt


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
        self._link = Link(door, runtime, patience=patience, lease=lease, durability=durability, mark=mark(plane, shard))
        self._reader = Link(door, runtime, patience=patience, lease=lease, waits=True)
        # A connection of its own: on the others all that comes behind a wait for the disk would wait along.
        self._syncing = Link(
            door, runtime, patience=patience, lease=lease, durability=durability, mark=mark(plane, shard)
        )
        self._commit = GroupCommit(self._syncing.confirm)
        self._bell = Bell(self._link, self._reader, runtime, plane, shard)
        self._artifacts = artifacts
        self._together = Together(self._link)
        self._spelt = _SpeltBatches(plane, shard)
        self._turn = 0

    # --- a process that stops, and one that idles -------------------------------------------------------

    def hurry(self) -> None:
        """The process was told to stop: a read that waits ends now, and a server that is gone is soon given up."""
        self._link.hurry()
        self._reader.hurry()
        self._syncing.hurry()
        self._link.end_wait(self._reader)

    async def opened(self, seconds: float) -> None:
        """Wait until a batch is declared, `seconds` at most; it may go unheard."""
        await self._bell.wait(seconds)

    # --- what every call needs ---------------------------------------------------------------------------

    def keys(self, batch: BatchId) -> BatchKeys:
        """The keys of a batch on this plane."""
        return self._spelt[batch].keys

    def _envelope(self, batch: BatchId, server: str, fields: Mapping[str, object]) -> bytes:
        heads = self._spelt[batch].heads
        head = heads.get(server)
        if head is None:
            heads.clear()  # of the server's lives before this one
            head = heads[server] = Head({"plane": self.plane.value, "batch": batch, "server": server or None})
        return encode(fields, head)

    def _scope(self, batch: BatchId) -> Mapping[str, str]:
        """Every key of the batch that a step may name, by the name that the script headers use."""
        spelt = self._spelt[batch]
        if not spelt.scope:
            keys = spelt.keys
            spelt.scope = {
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
        return spelt.scope

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
        ask: Callable[[], Awaitable[Decision | list[Decision]]]
        if run is not None:
            fields["run"] = run
        if target.own_keys and run is not None:
            ask = partial(self._together_with_others, target, batch, run, extra_keys, extra_argv, fields)
        else:
            ask = partial(self._send, target, batch, {**self._scope(batch), **(extra_keys or {})}, extra_argv, fields)
        said = await self._settled(batch, ask)
        decision = said if isinstance(said, Decision) else said[0]
        if decision.verb is not Verb.COMMIT:
            log.info("step.not_committed", step=name, batch=batch, run=run, decision=str(decision))
        return decision

    async def _settled(self, batch: BatchId, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask; and once more, when the batch's tokens were granted in another life of the server, once that is settled.

        Raises InputError for a batch that was imported.
        """
        try:
            said = await ask()
            reason = _reason(said)
            if reason == "server_changed" and await self._restarted(batch):
                said = await ask()
                reason = _reason(said)
            if reason in ("no_batch", "pruned"):
                await self._say_where_it_went(batch)
        except ReplyError as error:
            if error.code == CODE:
                raise only_for_looking(batch) from error
            raise
        return said

    async def _send(
        self, target: Script, batch: BatchId, scope: Mapping[str, object], rest: Mapping[str, object] | None,
        fields: Mapping[str, object],
    ) -> list[Decision]:  # fmt: skip
        """Call a script with those of the scope's keys that it names, the envelope, and the rest of its arguments.

        The envelope says which life of the server it is for.
        """
        keys = {name: scope[name] for name in (key.removesuffix("…") for key in target.keys)}

        def argv(server: str) -> Mapping[str, object]:
            return {"envelope": self._envelope(batch, server, fields), **(rest or {})}

        return await self._link.run_many(target, keys, argv)

    def _together_with_others(
        self, target: Script, batch: BatchId, run: RunId, extra_keys: Mapping[str, object] | None,
        extra_argv: Mapping[str, object] | None, fields: Mapping[str, object],
    ) -> Awaitable[Decision]:  # fmt: skip
        """As `_send`, in one call with whatever else is asked of this script now."""
        keys = self.keys(batch)
        own: tuple[str, ...] = (keys.run(run),)
        if len(target.own_keys) > 1:
            named = cast(str | None, extra_keys.get("transcript") if extra_keys else None)
            own = (keys.run(run), named or keys.transcript(run, cast(int, fields["conversation"])))
        behind = flatten(target.name, target.argv[1:], extra_argv or {}) if len(target.argv) > 1 or extra_argv else ()
        shared = self._shared(target, batch, extra_keys)
        return self._together.ask(target, shared, own, partial(self._argv, batch, fields, behind), 1 + len(behind))

    def _argv(
        self, batch: BatchId, fields: Mapping[str, object], behind: Sequence[str | bytes], server: str
    ) -> tuple[str | bytes, ...]:
        return (self._envelope(batch, server, fields), *behind)

    def _shared(self, target: Script, batch: BatchId, extra_keys: Mapping[str, object] | None) -> tuple[str, ...]:
        if extra_keys:
            scope: Mapping[str, str] = {**self._scope(batch), **cast(Mapping[str, str], extra_keys)}
            return tuple([scope[key] for key in target.shared_keys])
        shared = self._spelt[batch].shared
        found = shared.get(target.name)
        if found is None:
            scope = self._scope(batch)
            found = shared[target.name] = tuple([scope[key] for key in target.shared_keys])
        return found

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
            lambda server: {"envelope": self._envelope(batch, server, {})},
        )
        log.warning("server.changed", batch=batch, decision=str(decision), floor=decision.answer.get("floor"))
        return decision.applied


def _reason(said: Decision | list[Decision]) -> str | None:
    if isinstance(said, Decision):
        return said.reason
    return said[0].reason if said else None
