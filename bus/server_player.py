"""Plays conformance vectors through the scripts of a live server.

Each vector gets a batch of its own, under a random name, with a clock of its own that stands still between two moves;
afterwards every key of it is gone. Arguments go to the script as the vector gives them, malformed ones too: to refuse
them is the script's part.

    player = ServerPlayer(endpoint, runtime)
    report = await play(vector, player)
    await player.aclose()
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from bus.errors import ViolationError
from bus.fences.admission import Admission
from bus.fences.completion import Completion
from bus.fences.fence import Channel, Fence, is_text
from bus.fences.histogram import Histogram
from bus.fences.indoubt import InDoubt
from bus.fences.join import Join
from bus.fences.judge import Judge
from bus.fences.ledger import Ledger
from bus.fences.outbox import Outbox
from bus.fences.plane import PlaneFence, run_of
from bus.fences.sandbox import Sandbox
from bus.fences.transcript import Transcript
from bus.fences.workspace import Workspace
from bus.keys import BatchKeys
from bus.link import Door
from bus.port import LIMITS, BatchSpec, Group, Runtime
from bus.redis_bus import RedisBus
from bus.server_state import read_state
from bus.types import BatchId, Digest, Plane, RunId, Verb

__all__ = ["FENCES", "ServerPlayer"]

FENCES: Mapping[str, type[Fence[object]]] = {
    fence.NAME: fence
    for fence in (
        Histogram,
        Judge,
        Transcript,
        Sandbox,
        Workspace,
        Admission,
        Ledger,
        Completion,
        InDoubt,
        Outbox,
        PlaneFence,
        Join,
    )
}
"""The typed operations of every fence, by its name."""

_START_MS = 1_000_000  # where a vector's clock begins; not at 0, which a slip might take for "never"
_ONE_RUN = RunId("run")  # the run of all of a vector's steps, where the protocol names none
_DESK_RUN = RunId("desk")  # the one run that all of a vector's steps belong to: its row keeps their leases
_NO_STEP = "?"  # the step of a lease that was never granted


@dataclass(slots=True)
class _Batch:
    """The vector that is being played."""

    protocol: str
    channel: Channel
    fence: Fence[object]
    now_ms: int = _START_MS
    runs: dict[RunId, None] = field(default_factory=dict)
    """Every run that was named, in that order: their rows hold the state."""
    steps: dict[object, object] = field(default_factory=dict)
    """Lease → its step, which vectors of `admission` leave out."""


class ServerPlayer:
    """A `bus.vectors.Player` on a server. One vector at a time."""

    def __init__(self, door: Door, runtime: Runtime, *, plane: Plane = Plane.LIVE, bus: RedisBus | None = None) -> None:
        """Connects on the first use. `bus`: one to share with other players; whoever made it closes it."""
        self._runtime = runtime
        self._plane = plane
        self._shared = bus is not None
        self._bus = bus or RedisBus(door, runtime, plane=plane)
        self._link = self._bus.link
        self._batch: _Batch | None = None

    async def begin(self, protocol: str, config: Mapping[str, object]) -> None:
        """See `Player`."""
        name = BatchId(f"conform-{self._runtime.token()}")
        channel = Channel(self._link, BatchKeys(self._plane, name), self._runtime)
        batch = self._batch = _Batch(protocol, channel, FENCES[protocol](channel))
        created = await self._bus.create(_spec(name, config), announced=False)
        if created.verb is not Verb.COMMIT:
            raise ViolationError(f"a batch under a random name was answered {created}")
        await self._link.command("HDEL", channel.keys.registry, name)  # no role may take it for work
        await self._set_clock(batch)
        await self._declare(batch, config)

    async def apply(self, op: str, args: Mapping[str, object]) -> Mapping[str, object]:
        """See `Player`."""
        batch = self._begun()
        presented = dict(args)
        if isinstance(batch.fence, Sandbox | Workspace | Outbox | Ledger | Join):
            presented["run"] = _ONE_RUN
        if isinstance(batch.fence, Admission):
            presented["run"] = _DESK_RUN
            if op != "acquire":
                lease = args.get("lease")
                presented["step"] = batch.steps.get(lease, _NO_STEP) if is_text(lease) else _NO_STEP
        run = run_of(args.get("key")) if isinstance(batch.fence, PlaneFence) else presented.get("run")
        if is_text(run):
            batch.runs[RunId(run)] = None
        decision = await batch.fence.send(op, presented)
        if isinstance(batch.fence, Admission) and op == "acquire" and decision.applied:
            batch.steps[decision.answer["lease"]] = args["step"]
        return {"verb": decision.verb.value, "reason": decision.reason, **decision.answer}

    async def advance(self, ms: int) -> None:
        """See `Player`."""
        batch = self._begun()
        batch.now_ms += ms
        await self._set_clock(batch)

    async def dump(self) -> Mapping[str, object]:
        """See `Player`."""
        batch = self._begun()
        return await read_state(batch.protocol, self._link, batch.channel.keys, list(batch.runs))

    async def end(self) -> None:
        """See `Player`. Removes every key of the vector's batch."""
        batch, self._batch = self._batch, None
        if batch is None:
            return
        keys = batch.channel.keys
        owned = [keys.batch_row, keys.desk(), keys.leases, keys.index, keys.review, keys.history, keys.dead]
        owned += [keys.planes, *map(keys.undo, Plane)]
        owned += [keys.requests, keys.slots]
        owned += [keys.stream(group.stream) for group in Group]
        owned += [key for run in batch.runs for key in (keys.run(run), keys.transcript(run))]
        await self._link.commands([("DEL", *owned), ("HDEL", keys.registry, keys.batch)])

    async def aclose(self) -> None:
        """Close the connections."""
        if not self._shared:
            await self._bus.aclose()

    @property
    def keys(self) -> BatchKeys:
        """The keys of the batch that is being played, for who wants to look at them."""
        return self._begun().channel.keys

    async def _set_clock(self, batch: _Batch) -> None:
        await self._link.command("HSET", batch.channel.keys.batch_row, "clock", batch.now_ms)

    async def _declare(self, batch: _Batch, config: Mapping[str, object]) -> None:
        if isinstance(batch.fence, Histogram):
            batch.runs |= dict.fromkeys(RunId(run) for run in _texts(config["intended"]))
            await asyncio.gather(*(batch.fence.declare(run) for run in batch.runs))

    def _begun(self) -> _Batch:
        if self._batch is None:
            raise RuntimeError("begin() comes first")
        return self._batch


def _spec(name: BatchId, config: Mapping[str, object]) -> BatchSpec:
    """A batch with the vector's limits; what the protocol's configuration does not name has room for anything."""

    def number(field_: str, otherwise: int) -> int:
        return cast(int, config.get(field_, otherwise))  # the loader has checked it

    return BatchSpec(
        batch=name,
        suite="conform",
        suite_digest=Digest(""),
        suite_path="",
        intended=len(set(_texts(config.get("intended", ["run"])))),
        quorum=number("quorum", 1),
        bins=tuple(dict.fromkeys(_texts(config.get("bins", ["pass", "fail"])))),
        bound=number("bound", 1),
        max_in_flight=number("max_in_flight", 1),
        max_deliveries=1,
        lease_ms=1,
        judge_policy=str(config.get("policy", "reject")),
        replay_budget=number("replay_budget", 0),
        reclaim_ms=number("reclaim_ms", 1),
        limits={name: _limit(config[name]) for name in LIMITS if name in config},
    )


def _limit(value: object) -> int | str:
    return value if isinstance(value, int) else json.dumps(value)


def _texts(value: object) -> Sequence[str]:
    return cast(Sequence[str], value)  # the loader has checked it
