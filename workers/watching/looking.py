"""A batch on the server as a view, at a cost that does not grow with the batch.

Counts are one hash. Who holds what is read from the lists of pending messages, and so costs what is in flight, not
what was intended: ten thousand rows are not read to find the eight that run. Only the outcome of a batch that has
ended needs them all, in pieces, and once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bus.archived import began_ms
from bus.cluster import ServerBus
from bus.errors import ReplyError
from bus.held_loops import HeldLoop, held_loops
from bus.partitions import root_of
from bus.port import BatchSpec, BatchStatus, Counters, Group, IntentState, RunRow, RunState
from bus.replies import pairs_of
from bus.types import BatchId, RunId
from workers.brief import brief
from workers.results.fetching import existing, fetch_outcome
from workers.results.outcome import Outcome
from workers.results.progress import Glance, Pace, refused_of, state_of
from workers.results.whole import Whole, counters_in, counters_of, together, wholes
from workers.watching.tail import Tail, newest
from workers.watching.view import Brief, Doubt, Hold, Partition, View

__all__ = ["Watcher"]

_HOLDS: Final = 200  # of each group, shown
_DOUBTS: Final = 20
_ROWS_EVERY: Final = 2.0  # seconds between two looks at who holds what
_ENDED_EVERY: Final = 30.0  # seconds between two looks at a batch in the list that has ended

_SAYS = {
    IntentState.AWAITING_ACK: "sent, and not answered yet",
    IntentState.COMPENSATING: "being undone",
    IntentState.STUCK: "stuck: nobody knows whether its effect stands",
}


@dataclass(frozen=True, slots=True)
class _Pending:
    run: RunId
    silent_ms: int


@dataclass(frozen=True, slots=True)
class _Crowd:
    """Who was found at work at one look."""

    holds: tuple[Hold, ...] = ()
    left_out: int = 0
    doubts: tuple[Doubt, ...] = ()
    loops: Mapping[RunId, HeldLoop] = field(default_factory=dict)


class _Watched:
    """What is remembered of a batch from one look to the next."""

    def __init__(self, whole: Whole) -> None:
        self.whole = whole
        self.pace = Pace()
        self.tails: dict[BatchId, Tail] = {}
        """One for each history that the batch has."""
        self.crowd = _Crowd()
        self.crowd_until = float("-inf")
        self.outcome: Outcome | None = None

    @property
    def began_ms(self) -> int:
        """When the first of its partitions was declared; 0 where their histories are gone."""
        return min((tail.began_ms for tail in self.tails.values() if tail.began_ms), default=0)

    def is_of(self, whole: Whole) -> bool:
        """Whether it is this batch, and none that had its name before the server was emptied."""
        lives = {one.spec.batch: one.incarnation for one in whole.parts}
        return all(lives.get(one.spec.batch) == one.incarnation for one in self.whole.parts)


@dataclass(frozen=True, slots=True)
class _Listed:
    """What is listed for names that may be partitions of one batch."""

    names: tuple[BatchId, ...]
    lines: tuple[Brief, ...]
    until: float


class Watcher:
    """See the module's text. It only reads; every method raises ServerError when the server does not answer."""

    def __init__(self, bus: ServerBus, archive: Path | None = None) -> None:
        """The bus stays the caller's. `archive`: where histories were archived while their batches ran."""
        self._bus = bus
        self.archive = archive
        self._watched: dict[BatchId, _Watched] = {}
        self._listed: dict[BatchId, _Listed] = {}

    @property
    def bus(self) -> ServerBus:
        """Where it looks."""
        return self._bus

    async def check(self, batch: BatchId) -> None:
        """Raises InputError, with the nearest names, when there is no batch of that name."""
        await existing(self._bus, batch)

    async def briefs(self) -> tuple[Brief, ...]:
        """Every batch of the plane, one in partitions as one: the open ones first, each kind newest first."""
        now = asyncio.get_running_loop().time()
        alike: dict[BatchId, list[BatchId]] = {}
        for name, at in sorted((await self._bus.all_batches()).items()):
            if at is not BatchStatus.PRUNED:
                alike.setdefault(root_of(name), []).append(name)
        for gone in self._listed.keys() - alike.keys():
            for line in self._listed.pop(gone).lines:
                self._watched.pop(line.batch, None)
        for root, names in alike.items():
            known = self._listed.get(root)
            if known is None or now >= known.until or known.names != tuple(names):
                lines = tuple([await self._brief(await self._seen(one), now) for one in await wholes(self._bus, names)])
                until = now if any(line.open for line in lines) else now + _ENDED_EVERY
                self._listed[root] = _Listed(tuple(names), lines, until)
        found = [line for listed in self._listed.values() for line in listed.lines]
        return tuple(sorted(found, key=lambda line: (not line.open, -line.began_ms, line.batch)))

    async def view(self, batch: BatchId) -> View:
        """One batch in full. Raises InputError, with the nearest names, when there is none of that name."""
        now = asyncio.get_running_loop().time()
        known = self._watched.get(batch)
        if known is None or now >= known.crowd_until:
            seen = await self._seen(await existing(self._bus, batch))
        else:
            seen = known
        counted = await counters_in(self._bus, seen.whole)
        counters = together(seen.whole, counted)
        if counters.status.ended:
            seen.crowd = _Crowd(doubts=seen.crowd.doubts if counters.effects_open else ())
            if seen.outcome is None:
                seen.outcome = await fetch_outcome(self._bus, batch)
        elif now >= seen.crowd_until:
            seen.crowd = await self._crowd(seen.whole, counted)
            seen.crowd_until = now + _ROWS_EVERY
        at_ms = 0
        for name, tail in seen.tails.items():
            at_ms = max(at_ms, here := await self._server_ms(name))
            await tail.advance(here)
        tails = list(seen.tails.values())
        since_ms = max(tail.since_ms for tail in tails)
        speed = _pace(seen.pace, counters, now)
        crowd, info = seen.crowd, seen.whole.info
        workers, scorers = (len({one.who for one in crowd.holds if one.scoring is kind}) for kind in (False, True))
        return View(
            spec=info.spec,
            plane=info.plane,
            imported=bool(info.imported),
            at_ms=at_ms,
            began_ms=seen.began_ms,
            counters=counters,
            partitions=_partitions(seen.whole, counted),
            glance=Glance.of(counters, workers, scorers, speed.left),
            rate=speed.per_minute,
            holds=crowd.holds,
            holds_left_out=crowd.left_out,
            doubts=crowd.doubts,
            loops=crowd.loops,
            refusals=newest([tail.refusals for tail in tails], since_ms),
            refusals_since_ms=since_ms,
            archive="" if self.archive is not None else ", ".join(dict.fromkeys(t.archive for t in tails if t.archive)),
            outcome=seen.outcome if counters.status.ended else None,
        )

    async def _seen(self, whole: Whole) -> _Watched:
        """What is remembered of this batch."""
        known = self._watched.get(whole.name)
        if known is None or not known.is_of(whole):
            self._watched[whole.name] = known = _Watched(whole)
        known.whole = whole
        for name in whole.batches:
            if name not in known.tails:
                one = await self._bus.of(name)
                known.tails[name] = Tail(one.link, one.keys(name), name if whole.is_partitioned else None)
        return known

    async def _brief(self, seen: _Watched, now: float) -> Brief:
        counters = await counters_of(self._bus, seen.whole)
        for name, tail in seen.tails.items():
            if not tail.began_ms:
                one = await self._bus.of(name)
                tail.began_ms = await began_ms(one.link, one.keys(name))
        speed, names = _pace(seen.pace, counters, now), seen.whole.info.spec.bins
        return Brief(
            batch=seen.whole.name,
            state=state_of(counters),
            intended=counters.intended,
            ended=counters.scored + counters.holes,
            running=counters.running,
            scoring=counters.sealed + counters.scoring,
            holes=counters.holes,
            refused=refused_of(counters),
            bins={name: counters.bins.get(name, 0) for name in names} if counters.status.ended else {},
            began_ms=seen.began_ms,
            rate=speed.per_minute,
            seconds_left=speed.left,
        )

    async def _server_ms(self, batch: BatchId) -> int:
        seconds, micros = await (await self._bus.of(batch)).link.command("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def _crowd(self, whole: Whole, counted: Sequence[Counters]) -> _Crowd:
        holds: list[Hold] = []
        doubts: list[Doubt] = []
        loops: dict[RunId, HeldLoop] = {}
        most = math.ceil(_HOLDS / len(whole.parts))
        for batch, counters in zip(whole.batches, counted, strict=True):
            found: list[Hold] = []
            for group, state in ((Group.WORKER, RunState.RUNNING), (Group.SCORER, RunState.SCORING)):
                pending = {one.run: one.silent_ms for one in await self._pending(batch, group, most)}
                rows = await self._bus.rows(batch, list(pending))
                found += [_hold(row, pending[row.run]) for row in rows if row.state is state]
            if counters.effects_open and len(doubts) < _DOUBTS:
                doubts += await self._doubts(batch, [hold.run for hold in found])
            holds += found
            loops |= await held_loops(await self._bus.of(batch), batch)
        left_out = max(0, sum(one.running + one.scoring for one in counted) - len(holds))
        holds.sort(key=lambda one: (one.scoring, one.who, one.run))
        return _Crowd(tuple(holds), left_out, tuple(doubts[:_DOUBTS]), loops)

    async def _pending(self, batch: BatchId, group: Group, most: int) -> list[_Pending]:
        """Messages that were delivered and not acknowledged, with the time since their owner last said a word."""
        one = await self._bus.of(batch)
        stream, link = one.keys(batch).stream(group.stream), one.link
        try:
            found = await link.command("XPENDING", stream, group.on_server, "-", "+", most)
        except ReplyError as error:
            if error.code == "NOGROUP":  # nobody ever read it, or it was imported to be looked at
                return []
            raise
        entries = await link.commands([("XRANGE", stream, one[0], one[0]) for one in found]) if found else []
        pending = []
        for (_, _, idle, _), entry in zip(found, entries, strict=True):
            if entry:  # it was deleted meanwhile: acknowledged by its owner
                fields = pairs_of(entry[0][1])
                pending.append(_Pending(RunId(fields.get(b"run", b"").decode("utf-8", "replace")), int(idle)))
        return pending

    async def _doubts(self, batch: BatchId, runs: Sequence[RunId]) -> list[Doubt]:
        doubts: list[Doubt] = []
        for run in runs:
            for one in await self._bus.doubts(batch, run):
                doubts.append(Doubt(one.id, run, brief(one.tool, 60), _SAYS[one.state]))
                if len(doubts) == _DOUBTS:
                    return doubts
        return doubts


def _partitions(whole: Whole, counted: Sequence[Counters]) -> tuple[Partition, ...]:
    """How each stands; none for a batch that is whole."""
    if not whole.is_partitioned:
        return ()
    return tuple(
        Partition(one.spec.batch, counters.status.ended, _is_spent(one.spec, counters))
        for one, counters in zip(whole.parts, counted, strict=True)
    )


def _is_spent(spec: BatchSpec, counters: Counters) -> bool:
    budget = spec.limits.get("budget")
    return budget is not None and counters.spent + counters.reserved >= int(budget)


@dataclass(frozen=True, slots=True)
class _Speed:
    left: float | None
    per_minute: float | None


def _pace(pace: Pace, counters: Counters, now: float) -> _Speed:
    """Seconds until all runs have ended, and runs that end in a minute: as of the last half minute."""
    done = counters.scored + counters.holes
    pace.add(now, done)
    if counters.status.ended or done == counters.intended:
        return _Speed(None, None)
    one = pace.seconds_left(1)
    return _Speed(pace.seconds_left(counters.intended - done), 60 / one if one else None)


def _hold(row: RunRow, silent_ms: int) -> Hold:
    scoring = row.state is RunState.SCORING
    return Hold(
        run=row.run,
        scoring=scoring,
        who=brief(row.consumer, 60),
        gen=row.epoch if scoring else row.gen,
        delivery=row.score_attempts if scoring else row.attempts,
        silent_ms=silent_ms,
    )
