"""Fence 5, histogram: a gate reads a closed set.

Problem   a pass rate over whatever happened to finish drops the slow runs, counts a retried one twice, and
          moves after somebody has read it.
States    open ── drain ──▶ drained ── close ──▶ closed         (a snapshot, and only now a number)
                                        └──────▶ inconclusive   (below the quorum: an end without a number)
          a run: declared ──▶ fenced at an epoch ──▶ scored, or abandoned (a named hole); both are ends.
Invariants
  H1 after the end no row, bin or hole moves.     H2 no number exists before the close.
  H3 every number names its snapshot, which is the same for every order of arrival of the same rows.
  H4 a close has every declared run scored or named as a hole, and the quorum reached.
  H5 a row was accepted once, under the fenced epoch, for the digest that the run's first fence declared.
  H6 runs in flight never exceed `max_in_flight`.
  L1 the batch can always be brought to an end: what is left is named, then drained and closed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from bus.models.model import Answer, Model, commit, duplicate, in_doubt, reject

__all__ = ["Histogram", "Row", "Status"]


class Status(StrEnum):
    """Where the batch stands."""

    OPEN = "open"
    DRAINED = "drained"
    CLOSED = "closed"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Row:
    """An accepted score. `value` is text and is never parsed."""

    run: str
    digest: str
    epoch: int
    bin: str
    value: str

    def as_list(self) -> list[object]:
        return [self.run, self.digest, self.epoch, self.bin, self.value]


@dataclass(frozen=True, slots=True)
class Proposal:
    """Bytes that differ from the run's own are another run, which somebody may want to have."""

    run: str
    digest: str


class Histogram(Model):
    """The scores of one batch."""

    FENCE = "histogram"
    CONFIG = "intended strs, quorum int1, bins strs, max_in_flight int1"
    OPS: ClassVar = {
        "fence": "run str, epoch int, digest str",
        "score": "run str, digest str, epoch int, bin str, value str",
        "abandon": "run str, epoch int, why str",
        "drain": "",
        "close": "",
        "pass_rate": "",
    }

    def __init__(
        self,
        *,
        intended: Sequence[str],
        quorum: int,
        bins: Sequence[str],
        max_in_flight: int,
        draw: Callable[[], str] | None = None,
    ) -> None:
        """`intended` are the runs that the batch declares; the first of `bins` is the one that passes."""
        super().__init__(draw=draw)
        self.intended = frozenset(intended)
        self.quorum = quorum
        self.bins = tuple(dict.fromkeys(bins))
        self.max_in_flight = max_in_flight
        self.status = Status.OPEN
        self.digests: dict[str, str] = {}
        """Run → the digest of its first fence."""
        self.epochs: dict[str, int] = {}
        """Run → the fenced epoch."""
        self.rows: dict[str, Row] = {}
        self.holes: dict[str, str] = {}
        self.in_flight: set[str] = set()
        """Fenced, and neither scored nor abandoned."""
        self.proposals: list[Proposal] = []
        self.snapshot_id: str | None = None

    def fence(self, *, run: str, epoch: int, digest: str) -> Answer:
        if self._ended():
            return reject("after_close")
        if run not in self.intended:
            return reject("unknown_run")
        if epoch <= self.epochs.get(run, 0):
            return reject("epoch_not_newer")
        if run in self.rows:
            return reject("already_scored")
        if run in self.holes:
            return reject("abandoned")
        if digest != self.digests.get(run, digest):
            return self._another_run(run, digest)
        if run not in self.digests and len(self.in_flight) >= self.max_in_flight:
            return reject("backpressure")

        self.digests[run] = digest
        self.epochs[run] = epoch
        self.in_flight.add(run)
        return commit()

    def score(self, *, run: str, digest: str, epoch: int, bin: str, value: str) -> Answer:
        row = Row(run, digest, epoch, bin, value)
        if bin not in self.bins:
            return reject("schema")
        if self._ended():
            return reject("after_close")
        if run not in self.intended:
            return reject("unknown_run")
        if run in self.holes:
            return reject("abandoned")
        if epoch != self.epochs.get(run):
            return reject("stale_epoch")
        if self._foreign(run, digest):
            return self._another_run(run, digest)
        if run in self.rows:
            return duplicate() if self.rows[run] == row else reject("score_conflict")

        self.rows[run] = row
        self.in_flight.discard(run)
        return commit()

    def abandon(self, *, run: str, epoch: int, why: str) -> Answer:
        if self._ended():
            return reject("after_close")
        if run not in self.intended:
            return reject("unknown_run")
        if run in self.holes:
            return duplicate() if self.holes[run] == why else reject("abandoned")
        if run in self.rows:
            return reject("already_scored")
        if epoch != self.epochs.get(run, 0):
            return reject("stale_epoch")

        self.holes[run] = why
        self.in_flight.discard(run)
        return commit()

    def drain(self) -> Answer:
        if self.status is not Status.OPEN:
            return duplicate()

        self.status = Status.DRAINED
        return commit()

    def close(self) -> Answer:
        if self.status is Status.CLOSED:
            return duplicate(snapshot_id=self.snapshot_id, accepted=len(self.rows))
        if self.status is Status.INCONCLUSIVE:
            return reject("below_quorum")
        if too_early := self._too_early():
            return too_early
        if len(self.rows) < self.quorum:
            self.status = Status.INCONCLUSIVE
            return reject("below_quorum")

        self.status = Status.CLOSED
        self.snapshot_id = self.snapshot()
        return commit(snapshot_id=self.snapshot_id, accepted=len(self.rows))

    def pass_rate(self) -> Answer:
        if no_number := self._no_number():
            return no_number

        return commit(
            passed=self.counts()[self.bins[0]],
            accepted=len(self.rows),
            holes=len(self.holes),
            snapshot_id=self.snapshot_id,
        )

    def _ended(self) -> bool:
        """Closed, in either of the two ways."""
        return self.status in (Status.CLOSED, Status.INCONCLUSIVE)

    def _foreign(self, run: str, digest: str) -> bool:
        """A score for other bytes than those that the run sealed."""
        return digest != self.digests[run]

    def _another_run(self, run: str, digest: str) -> Answer:
        """Refuse bytes that differ, and keep them as a proposal, each once."""
        proposal = Proposal(run, digest)
        if proposal not in self.proposals:
            self.proposals.append(proposal)
        return reject("digest_mismatch")

    def _too_early(self) -> Answer | None:
        """The quorum alone would keep the fast runs and drop the slow."""
        if self.status is not Status.DRAINED:
            return in_doubt("not_drained")
        if len(self.rows) + len(self.holes) < len(self.intended):
            return in_doubt("in_flight")
        return None

    def _no_number(self) -> Answer | None:
        """A rate is read from a snapshot only."""
        if self.status is Status.INCONCLUSIVE:
            return reject("below_quorum")
        if self.status is not Status.CLOSED:
            return reject("open_histogram")
        return None

    def counts(self) -> dict[str, int]:
        """Every declared bin with its accepted rows."""
        counts = dict.fromkeys(self.bins, 0)
        for row in self.rows.values():
            counts[row.bin] += 1
        return counts

    def snapshot(self) -> str:
        """SHA-256 over the canonical JSON of what is accepted. No refusals: they depend on the order."""
        content = {
            "accepted": len(self.rows),
            "bins": self.counts(),
            "holes": [[run, self.holes[run]] for run in sorted(self.holes)],
            "intended": len(self.intended),
            "quorum": self.quorum,
            "rows": [self.rows[run].as_list() for run in sorted(self.rows)],
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def state(self) -> dict[str, object]:
        """See `Model.state`."""
        return {
            "status": self.status.value,
            "accepted": len(self.rows),
            "bins": self.counts(),
            "holes": dict(self.holes),
            "rows": [self.rows[run].as_list() for run in sorted(self.rows)],
            "in_flight": sorted(self.in_flight),
            "proposals": [{"run": proposal.run, "digest": proposal.digest} for proposal in self.proposals],
            "snapshot_id": self.snapshot_id,
        }
