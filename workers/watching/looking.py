"""A batch on the server as a view, at a cost that does not grow with the batch.

Counts are one hash. Who holds what is read from the lists of pending messages, and so costs what is in flight, not
what was intended: ten thousand rows are not read to find the eight that run. Only the outcome of a batch that has
ended needs them all, in pieces, and once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bus.archived import began_ms
from bus.cluster import ServerBus
from bus.errors import InputError, ReplyError
from bus.port import BatchInfo, BatchStatus, Counters, Group, IntentState, RunRow, RunState
from bus.replies import pairs_of
from bus.types import BatchId, RunId
from workers.brief import brief
from workers.job import fetch_outcome, info_of
from workers.outcome import Outcome
from workers.progress import Glance, Pace
from workers.watching.tail import Tail
from workers.watching.view import Brief, Doubt, Hold, View, state_of

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


class _Watched:
    """What is remembered of a batch from one look to the next."""

    def __init__(self, info: BatchInfo, tail: Tail) -> None:
        self.info = info
        self.pace = Pace()
        self.tail = tail
        self.crowd = _Crowd()
        self.crowd_until = float("-inf")
        self.outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class _Listed:
    line: Brief
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
        await info_of(self._bus, batch)

    async def briefs(self) -> tuple[Brief, ...]:
        """Every batch of the plane: the open ones first, each kind newest first."""
        now = asyncio.get_running_loop().time()
        names = [name for name, at in (await self._bus.all_batches()).items() if at is not BatchStatus.PRUNED]
        for gone in self._listed.keys() - set(names):
            del self._listed[gone]
            self._watched.pop(gone, None)
        for name in names:
            known = self._listed.get(name)
            if known is None or now >= known.until:
                try:
                    info = await info_of(self._bus, name)
                except InputError:  # it was pruned a moment ago
                    self._listed.pop(name, None)
                    continue
                line = await self._brief(await self._seen(info), name, now)
                self._listed[name] = _Listed(line, now if line.open else now + _ENDED_EVERY)
        lines = [listed.line for listed in self._listed.values()]
        return tuple(sorted(lines, key=lambda line: (not line.open, -line.began_ms, line.batch)))

    async def view(self, batch: BatchId) -> View:
        """One batch in full. Raises InputError, with the nearest names, when there is none of that name."""
        now = asyncio.get_running_loop().time()
        known = self._watched.get(batch)
        if known is None or now >= known.crowd_until:
            seen = await self._seen(await info_of(self._bus, batch))
        else:
            seen = known
        counters = await self._bus.counters(batch)
        if counters.status.ended:
            seen.crowd = _Crowd(doubts=seen.crowd.doubts if counters.effects_open else ())
            if seen.outcome is None:
                seen.outcome = await fetch_outcome(self._bus, batch)
        elif now >= seen.crowd_until:
            seen.crowd = await self._crowd(batch, counters)
            seen.crowd_until = now + _ROWS_EVERY
        at_ms = await self._server_ms(batch)
        await seen.tail.advance(at_ms)
        speed = _pace(seen.pace, counters, now)
        crowd = seen.crowd
        workers, scorers = (len({one.who for one in crowd.holds if one.scoring is kind}) for kind in (False, True))
        return View(
            spec=seen.info.spec,
            plane=seen.info.plane,
            imported=bool(seen.info.imported),
            at_ms=at_ms,
            began_ms=seen.tail.began_ms,
            counters=counters,
            glance=Glance.of(counters, workers, scorers, speed.left),
            rate=speed.per_minute,
            holds=crowd.holds,
            holds_left_out=crowd.left_out,
            doubts=crowd.doubts,
            refusals=seen.tail.refusals,
            refusals_since_ms=seen.tail.since_ms,
            archive="" if self.archive is not None else seen.tail.archive,
            outcome=seen.outcome if counters.status.ended else None,
        )

    async def _seen(self, info: BatchInfo) -> _Watched:
        """What is remembered of this batch, and nothing of one that had its name before the server was emptied."""
        batch = info.spec.batch
        known = self._watched.get(batch)
        if known is None or known.info.incarnation != info.incarnation:
            one = await self._bus.of(batch)
            self._watched[batch] = known = _Watched(info, Tail(one.link, one.keys(batch)))
        known.info = info
        return known

    async def _brief(self, seen: _Watched, batch: BatchId, now: float) -> Brief:
        counters = await self._bus.counters(batch)
        if not seen.tail.began_ms:
            one = await self._bus.of(batch)
            seen.tail.began_ms = await began_ms(one.link, one.keys(batch))
        speed = _pace(seen.pace, counters, now)
        return Brief(
            batch=batch,
            state=state_of(counters),
            intended=counters.intended,
            ended=counters.scored + counters.holes,
            running=counters.running,
            scoring=counters.sealed + counters.scoring,
            holes=counters.holes,
            refused=sum(counters.refusals.values()),
            began_ms=seen.tail.began_ms,
            rate=speed.per_minute,
            seconds_left=speed.left,
        )

    async def _server_ms(self, batch: BatchId) -> int:
        seconds, micros = await (await self._bus.of(batch)).link.command("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def _crowd(self, batch: BatchId, counters: Counters) -> _Crowd:
        holds: list[Hold] = []
        for group, state in ((Group.WORKER, RunState.RUNNING), (Group.SCORER, RunState.SCORING)):
            pending = {one.run: one.silent_ms for one in await self._pending(batch, group)}
            rows = await self._bus.rows(batch, list(pending))
            holds += [_hold(row, pending[row.run]) for row in rows if row.state is state]
        doubts = await self._doubts(batch, [hold.run for hold in holds]) if counters.effects_open else []
        left_out = max(0, counters.running + counters.scoring - len(holds))
        return _Crowd(tuple(sorted(holds, key=lambda one: (one.scoring, one.who, one.run))), left_out, tuple(doubts))

    async def _pending(self, batch: BatchId, group: Group) -> list[_Pending]:
        """Messages that were delivered and not acknowledged, with the time since their owner last said a word."""
        one = await self._bus.of(batch)
        stream, link = one.keys(batch).stream(group.stream), one.link
        try:
            found = await link.command("XPENDING", stream, group.on_server, "-", "+", _HOLDS)
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
