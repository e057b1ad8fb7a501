"""A whole history: lines in, one after the other, and what they come to.

replay = Replay("nightly.jsonl")
for raw in file:
    replay.feed(raw)                 # raises at the first line that differs
found = replay.finish()

Memory grows with the runs and their steps, not with the lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bus.models.histogram import Status
from bus.port import Judgement
from bus.replay.lines import Footer, Header, Lines
from bus.replay.player import Player
from bus.replay.rules import Rules
from bus.replay.telling import DiffersError, Told, is_same, says
from bus.snapshot import ScoreRow, Snapshot
from bus.types import RunId

__all__ = ["Replay", "Replayed"]

_POLICY = (
    "intended",
    "quorum",
    "bins",
    "bound",
    "max_in_flight",
    "max_deliveries",
    "lease_ms",
    "reclaim_ms",
    "judge_policy",
    "replay_budget",
    "gate",
    "limits",
)


@dataclass(frozen=True, slots=True)
class Replayed:
    """A history that holds, and the state that its decisions lead to."""

    batch: str
    plane: str
    entries: int
    head: str
    """Of the chain. Whoever wrote it down when the history was exported can tell whether this is that history."""
    decisions: Mapping[str, int]
    """By fence; `run` is the steps' own."""
    refusals: Mapping[str, int]
    status: str
    bins: Mapping[str, int]
    holes: Mapping[RunId, str]
    rows: Mapping[RunId, ScoreRow]
    snapshot_id: str | None
    spent: int
    durable: int
    reserved: int
    effects_open: int
    stuck: int


class Replay:
    """See the module's text."""

    def __init__(self, source: str, *, clock: Callable[[Told], int] | None = None) -> None:
        """`source`: how messages name the file. `clock`: see `Player`."""
        self.source = source
        self._clock = clock
        self._lines = Lines(source)
        self._rules = Rules(source)
        self._header: Header | None = None
        self._footer: Footer | None = None
        self._player: Player | None = None
        self.last = ""
        """The id of the last entry."""

    @property
    def entries(self) -> int:
        """Read so far."""
        return self._lines.entries

    def feed(self, raw: bytes) -> Header | Told | Footer:
        """The next line of the file; answers what it says, derived again.

        Raises InputError for what is no export or needs other rules than this release has, DiffersError for a line that
        is not true.
        """
        if self._header is None:
            self._header = self._lines.first(raw)
            return self._header
        said = self._lines.next(raw)
        if isinstance(said, Footer):
            self._footer = said
            return said
        self._rules.check(said)
        if self._player is None:
            self._begin(self._header, said)
        if self._player is not None:
            self._compare(self._player, said)
        self.last = said.entry
        return said

    def finish(self) -> Replayed:
        """There are no more lines. Raises as `feed` does."""
        if self._header is None:
            self._lines.first(b"")
        self._lines.end()
        if self._footer is None or self._header is None or self._player is None:
            problem = "no entry declares the batch: its first ones are missing"
            raise DiffersError(self.source, self._lines.entries + 2, problem)
        snapshot = self._snapshot(self._player)
        self._compare_snapshot(self._footer, snapshot)
        return self._found(self._header, self._player, snapshot)

    # --- the declaration -----------------------------------------------------------------------------------

    def _begin(self, header: Header, told: Told) -> None:
        """The entry that declares the batch comes before any that changes it; the file's first line repeats it."""
        if told.refused:  # somebody asked before there was a batch
            return
        if (told.fence, told.op, told.verb) != ("run", "create", "commit"):
            raise self._differs(told, f"{told.name}: no entry before it declares the batch: its first ones are missing")
        try:
            spec = json.loads(told.envelope["spec"])
            declared = {name: spec[name] for name in _POLICY}
            suite = {"name": spec["suite"], "digest": spec["suite_digest"]}
            whole = {"batch": spec["batch"], "plane": told.envelope["plane"], "suite": suite, **declared}
        except (KeyError, TypeError, ValueError):
            raise self._differs(told, f"{told.name}: its declaration cannot be read") from None
        stated = {"batch": header.batch, "plane": header.plane, "suite": header.suite, **header.policy}
        for name in whole.keys() | stated.keys():
            if whole.get(name) != stated.get(name):
                raise DiffersError(
                    self.source,
                    1,
                    f"the first line's {name}: recorded {json.dumps(stated.get(name))}, "
                    f"declared in {told.id} {json.dumps(whole.get(name))}",
                )
        try:
            self._player = self._rules.player()(header.policy, self._clock)
        except (TypeError, ValueError, AttributeError):
            raise self._differs(told, f"{told.name}: its declaration cannot be read") from None

    # --- one decision --------------------------------------------------------------------------------------

    def _compare(self, player: Player, told: Told) -> None:
        if not player.knows(told):
            raise self._differs(told, f"{told.name}: this release has no such operation")
        try:
            derived = player.decide(told)
        except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
            # What a script recorded has the form that its fence takes; who wrote this line did not know it.
            raise self._differs(told, f"{told.name}: nothing can be derived from what it was given") from error
        if derived is None:
            return
        if not is_same(told, derived):
            recorded = says(told.verb, told.reason, told.answer)
            other = says(derived.verb.value, derived.reason, derived.fields)
            raise self._differs(told, f"{told.name}: recorded {recorded}, derived {other}")
        if (told.fence, told.op, told.verb) == ("histogram", "score", "commit") and "score_digest" in told.envelope:
            self._check_signature(told)

    def _check_signature(self, told: Told) -> None:
        """What was scored is what the scorer signed: the digest is over the sealed head, the bin and the value."""
        envelope, args = told.envelope, told.args
        head, named, value = (args[name] for name in ("digest", "bin", "value"))
        derived = Judgement(head, "", "", "", 0, named, value).score_digest
        if envelope["score_digest"] != derived:
            problem = f"{told.name}: recorded score_digest {envelope['score_digest']}, derived {derived}"
            raise self._differs(told, problem)

    def _differs(self, told: Told, problem: str) -> DiffersError:
        return DiffersError(self.source, told.line, problem)

    # --- the end -------------------------------------------------------------------------------------------

    def _snapshot(self, player: Player) -> Snapshot | None:
        histogram = player.histogram
        if histogram.status not in (Status.CLOSED, Status.INCONCLUSIVE):
            return None
        rows = [ScoreRow(RunId(row.run), row.digest, row.epoch, row.bin, row.value) for row in histogram.rows.values()]
        holes = {RunId(run): why for run, why in histogram.holes.items()}
        rows.sort(key=lambda row: row.run)
        return Snapshot(len(histogram.intended), histogram.quorum, histogram.counts(), holes, tuple(rows))

    def _compare_snapshot(self, footer: Footer, derived: Snapshot | None) -> None:
        if footer.snapshot is None and derived is None:
            return
        if footer.snapshot is None or derived is None:
            recorded, other = ("none", "one") if footer.snapshot is None else ("one", "none: the batch has not ended")
            raise DiffersError(self.source, footer.line, f"the snapshot: recorded {recorded}, derived {other}")
        said = dict(footer.snapshot)
        named = said.pop("snapshot_id", None)
        content = derived.canonical_bytes()
        if json.dumps(said, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode() != content:
            whole = json.loads(content)
            where = next((name for name in sorted(whole.keys() | said.keys()) if said.get(name) != whole.get(name)), "")
            problem = f"the snapshot's {where}: recorded {_short(said.get(where))}, derived {_short(whole.get(where))}"
            raise DiffersError(self.source, footer.line, problem)
        if named != derived.snapshot_id:
            problem = f"the snapshot's id: recorded {named}, derived {derived.snapshot_id}"
            raise DiffersError(self.source, footer.line, problem)

    def _found(self, header: Header, player: Player, snapshot: Snapshot | None) -> Replayed:
        histogram = player.histogram
        return Replayed(
            batch=header.batch,
            plane=header.plane,
            entries=self._lines.entries,
            head=self._lines.head,
            decisions=dict(player.decisions),
            refusals=dict(player.refusals),
            status=histogram.status.value,
            bins=histogram.counts(),
            holes={RunId(run): why for run, why in histogram.holes.items()},
            rows={
                RunId(row.run): ScoreRow(RunId(row.run), row.digest, row.epoch, row.bin, row.value)
                for row in histogram.rows.values()
            },
            snapshot_id=None if snapshot is None else snapshot.snapshot_id,
            spent=player.ledger.spent,
            durable=player.ledger.durable,
            reserved=player.ledger.reserved,
            effects_open=player.effects_open,
            stuck=player.stuck,
        )


def _short(value: Any) -> str:  # noqa: ANN401 - any JSON value
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= 200 else text[:200] + "…"  # noqa: PLR2004 - characters of a message
