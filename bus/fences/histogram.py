"""Fence 5, histogram: a gate reads a closed set.

Problem   a pass rate over whatever happened to finish drops the slow runs, counts a retried one twice, and moves after
          somebody has read it.

States    of the batch
              open ── drain ──▶ drained ── close ──▶ closed          a snapshot, and only now a number
                                    └───── close ──▶ inconclusive    below the quorum: an end without a number
          of a run
              declared ── fence ──▶ in flight at epoch e ── score ──▶ scored, for good
                 │                    │  ▲     └────────── abandon ──▶ a named hole, for good
                 │                    └──┘ fence: a restart, at a larger epoch      ▲
                 └───────────────────── abandon, at epoch 0 ────────────────────────┘

Invariants
  H1 after the end no row, bin or hole moves.     H2 no number exists before the close.
  H3 every number names its snapshot, which is the same for every order of arrival of the same rows.
  H4 a close has every declared run scored or named as a hole, and the quorum reached.
  H5 a row was accepted once, under the fenced epoch, for the digest that the run's first fence declared.
  H6 runs in flight never exceed `max_in_flight`.

If a party dies
  | who, when                            | what stands            | what follows                              |
  |--------------------------------------|------------------------|-------------------------------------------|
  | planner, while it declares           | some runs              | declared again: duplicate                 |
  | scorer, before or after `fence`      | perhaps a larger epoch | the next scorer fences a larger one; what |
  |                                      |                        | the first still says is stale_epoch       |
  | scorer, before `score`               | a run in flight        | fenced again, or abandoned by name        |
  | scorer, after `score`, answer lost   | the row                | resent: duplicate; other: score_conflict  |
  | planner, after `drain`               | drained                | resent: duplicate                         |
  | planner, between reading and `close` | a drained batch        | another reads the same rows, and finds    |
  |                                      |                        | the same snapshot id                      |
  | planner, after `close`, answer lost  | the snapshot           | resent: duplicate, with the same id       |
  | server                               | what it answered       | everything above, after its restart       |

The server has no SHA-256. So `close` reads the rows and computes the snapshot here; once every run has ended they
cannot change, and the script compares the counts: who read too early closes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from bus.errors import InputError
from bus.fences.fence import Channel, Fence, Result
from bus.snapshot import ScoreRow, Snapshot
from bus.types import Decision, Digest, RunId

__all__ = ["Histogram", "HistogramReason", "HistogramResult"]

_AT_ONCE = 500  # rows in one read: bounded replies, however large the batch
_FIELDS = ("h.digest", "h.epoch", "h.bin", "h.value", "h.why")


class HistogramReason(StrEnum):
    """Why an operation was not applied."""

    SCHEMA = "schema"
    """An argument is missing or malformed, or a bin was never declared."""
    AFTER_CLOSE = "after_close"
    """The batch has ended."""
    UNKNOWN_RUN = "unknown_run"
    """The batch never declared this run."""
    EPOCH_NOT_NEWER = "epoch_not_newer"
    """A restart must name a larger epoch than the one that is fenced."""
    ALREADY_SCORED = "already_scored"
    """The run has its score."""
    ABANDONED = "abandoned"
    """The run is a hole."""
    DIGEST_MISMATCH = "digest_mismatch"
    """Other bytes than those that the first fence declared: another run, kept as a proposal."""
    BACKPRESSURE = "backpressure"
    """As many runs as allowed are in flight; restarts go on, fresh ones wait."""
    STALE_EPOCH = "stale_epoch"
    """The epoch is not the fenced one."""
    SCORE_CONFLICT = "score_conflict"
    """The run has another score."""
    NOT_DRAINED = "not_drained"
    """New runs may still come."""
    IN_FLIGHT = "in_flight"
    """A declared run has not ended."""
    BELOW_QUORUM = "below_quorum"
    """Too few scores: the batch is inconclusive."""
    OPEN_HISTOGRAM = "open_histogram"
    """There is no number before the close."""


@dataclass(frozen=True, slots=True)
class HistogramResult(Result[HistogramReason]):
    """The answer of a histogram operation."""

    snapshot_id: Digest | None = None
    accepted: int | None = None
    """Runs with an accepted score: the denominator."""
    passed: int | None = None
    """Those of them in the first bin."""
    holes: int | None = None
    """Runs that ended without a score."""


@dataclass(frozen=True, slots=True)
class _Declared:
    """What the batch declared of its histogram."""

    intended: int
    quorum: int
    bins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Ended:
    """How a run ended, if it did: with a score, or as a hole."""

    run: RunId
    score: ScoreRow | None
    why: str | None


def _ended(run: RunId, reply: Sequence[bytes | None]) -> _Ended:
    digest, epoch, bin_, value, why = (None if item is None else item.decode() for item in reply)
    score = None
    if digest is not None and epoch is not None and bin_ is not None and value is not None:
        score = ScoreRow(run, digest, int(epoch), bin_, value)
    return _Ended(run, score, why)


class Histogram(Fence[HistogramResult]):
    """The scores of one batch."""

    NAME: ClassVar[str] = "histogram"

    def __init__(self, channel: Channel) -> None:
        """The batch must have been created: it names the bins and the quorum."""
        super().__init__(channel)
        self._declared: _Declared | None = None

    async def declare(self, run: RunId) -> HistogramResult:
        """Name a run that the batch intends. No other can be scored, and none of these can go missing."""
        return await self._ask("declare", run=run)

    async def fence(self, run: RunId, epoch: int, digest: str) -> HistogramResult:
        """Open a scoring epoch, larger than each before, for the artifact of that digest."""
        return await self._ask("fence", run=run, epoch=epoch, digest=digest)

    async def score(self, run: RunId, digest: str, epoch: int, bin: str, value: str) -> HistogramResult:
        """Put the run into a bin. `value` is text and is never parsed."""
        return await self._ask("score", run=run, digest=digest, epoch=epoch, bin=bin, value=value)

    async def abandon(self, run: RunId, epoch: int, why: str) -> HistogramResult:
        """End the run as a hole of that name. `epoch` is the fenced one, 0 for a run that was never fenced."""
        return await self._ask("abandon", run=run, epoch=epoch, why=why)

    async def drain(self) -> HistogramResult:
        """Say that no new run will come; a close waits for it."""
        return await self._ask("drain")

    async def close(self) -> HistogramResult:
        """Close over the snapshot of all rows. Answers snapshot_id and accepted.

        Below the quorum the batch ends too, as inconclusive. Raises InputError when there is no such batch.
        """
        return await self._ask("close")

    async def pass_rate(self) -> HistogramResult:
        """Read the number: passed of accepted, beside holes, and the snapshot that they come from."""
        return await self._ask("pass_rate")

    async def snapshot(self) -> Snapshot:
        """The snapshot of what is accepted now. It is the batch's only once the batch is closed."""
        declared = await self._batch()
        holes: dict[RunId, str] = {}
        rows: list[ScoreRow] = []
        for ended in await self._rows():
            if ended.why is not None:
                holes[ended.run] = ended.why
            elif ended.score is not None:
                rows.append(ended.score)
        rows.sort(key=lambda row: row.run)
        counts = dict.fromkeys(declared.bins, 0)
        for row in rows:
            counts[row.bin] += 1
        return Snapshot(declared.intended, declared.quorum, counts, dict(sorted(holes.items())), tuple(rows))

    async def send(self, op: str, args: Mapping[str, object]) -> Decision:
        """See `Fence`. `close` and `pass_rate` take from the batch what the script cannot compute itself."""
        if op == "close":
            snapshot = await self.snapshot()
            shown = {"snapshot_id": snapshot.snapshot_id, "accepted": snapshot.accepted, "holes": len(snapshot.holes)}
            return await super().send(op, {**args, **shown})
        if op == "pass_rate":
            return await super().send(op, {**args, "passing": (await self._batch()).bins[0]})
        return await super().send(op, args)

    async def _batch(self) -> _Declared:
        if self._declared is None:
            keys = self._channel.keys
            text = await self._channel.link.command("HGET", keys.batch_row, "spec")
            if text is None:
                raise InputError(f"no batch {keys.batch!r} on this server")
            spec = json.loads(text)
            self._declared = _Declared(spec["intended"], spec["quorum"], tuple(spec["bins"]))
        return self._declared

    async def _rows(self) -> list[_Ended]:
        keys, link = self._channel.keys, self._channel.link
        runs = [RunId(item.decode()) for item in await link.command("LRANGE", keys.index, 0, -1)]
        found: list[_Ended] = []
        for start in range(0, len(runs), _AT_ONCE):
            piece = runs[start : start + _AT_ONCE]
            replies = await link.commands([("HMGET", keys.run(run), *_FIELDS) for run in piece])
            found += [_ended(run, reply) for run, reply in zip(piece, replies, strict=True)]
        return found

    @staticmethod
    def _result(decision: Decision) -> HistogramResult:
        answer = decision.answer
        return HistogramResult(
            decision.verb,
            HistogramReason(decision.reason) if decision.reason else None,
            snapshot_id=answer.get("snapshot_id"),
            accepted=answer.get("accepted"),
            passed=answer.get("passed"),
            holes=answer.get("holes"),
        )
