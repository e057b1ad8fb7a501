"""The life of each run, as far as a table of runs needs it, and the counts over time: from the history's own entries.

What is counted as what:

- A run is *leased* whenever a worker's claim of it is granted. Leases of scorers are none of these.
- A lease is *preempted* when another claim takes the run from whoever holds it: it was not handed back, sealed or ended
  before, and no restart of the server had made it void. The claim may be granted to the next worker, or, when the run
  was delivered as often as it may be, end the run as a hole.
- What is *refused* are decisions, as in the batch's own counters: a step that is refused is one, a heartbeat of ten
  dead leases ten.
- Tokens are those of the run's requests as they were last billed, late chunks and later settlements included. So the
  runs' sums are the batch's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from bus.export_format import Line
from bus.partitions import put_back
from workers.explaining.entries import Entry, entry_of, given, whole
from workers.reporting.facts import Bucket, RefusalGroup, RunFacts
from workers.reporting.owners import Owners
from workers.reporting.tally import Tally, is_refusal
from workers.reporting.texts import clipped
from workers.reporting.timeline import Happened, Timeline

__all__ = ["Lives"]

_QUEUED, _RUNNING, _SEALED, _SCORING, _HOLE = "queued", "running", "sealed", "scoring", "hole"


@dataclass(slots=True)
class _Spent:
    billed: int = 0
    durable: int = 0


@dataclass(slots=True)
class _Life:
    """One run so far. `held`: a worker has a live lease of it. `part`: in which history it is."""

    run: str
    part: int = 0
    state: str = ""
    """Empty for one that was neither admitted nor named a hole: only refused messages speak of it."""
    held: bool = False
    bin: str | None = None
    hole: str | None = None
    value: str = ""
    deliveries: int = 0
    refusals: int = 0
    admitted_ms: int | None = None
    leased_ms: int | None = None
    sealed_ms: int | None = None
    ended_ms: int | None = None
    worker: str = ""
    scorer: str = ""
    holders: dict[str, str] = field(default_factory=dict)
    """Lease → who was granted it."""
    attempts: dict[tuple[str, int], _Spent] = field(default_factory=dict)

    def facts(self) -> RunFacts:
        case, _, trial = self.run.rpartition("#")
        return RunFacts(
            run=clipped(self.run),
            case=clipped(case or self.run),
            trial=int(trial) if trial.isascii() and trial.isdigit() else 1,
            state=clipped(self.state),
            bin=self.bin,
            hole=self.hole,
            value=self.value,
            deliveries=self.deliveries,
            refusals=self.refusals,
            spent=sum(attempt.billed for attempt in self.attempts.values()),
            durable=sum(attempt.durable for attempt in self.attempts.values()),
            admitted_ms=self.admitted_ms,
            leased_ms=self.leased_ms,
            sealed_ms=self.sealed_ms,
            ended_ms=self.ended_ms,
            worker=self.worker,
            scorer=self.scorer,
        )


class Lives:
    """Takes a history line by line, in order; those of several partitions side by side, in the order of time.

    Memory grows with the runs and their requests to models.
    """

    def __init__(self, parts: int = 1) -> None:
        """Nothing was read. `parts`: how many histories there are."""
        self.began_unix_ms = 0
        """Of the first entry; 0 while there was none."""
        self._lives: dict[str, _Life] = {}
        self._owners = Owners()
        self._tally = Tally()
        self._timeline = Timeline()
        self._orders: tuple[list[str], ...] = tuple([] for _ in range(parts))
        """Of each history, the runs that were admitted or named holes, in that order."""
        self._ends: dict[int, int] = {}
        """Of each history that has ended, when."""
        self._at = 0
        """In which history the entry is that is being read."""
        self._entry = ""
        self._lines: list[tuple[Line, str | None]] = []

    @property
    def order(self) -> list[str]:
        """The runs that were admitted or named holes, in the suite's order, as if they had not been dealt out."""
        return put_back(self._orders)

    @property
    def ended_unix_ms(self) -> int | None:
        """Of the entry that closed the batch, or found it below its quorum; of partitions, the last one's."""
        return max(self._ends.values()) if len(self._ends) == len(self._orders) else None

    def take(self, line: Line, part: int = 0) -> str | None:
        """The next line; answers the run that it is about, if it is about one. `part`: in which history, from 0."""
        entry = line.id.partition("/")[0]
        if entry != self._entry or part != self._at:
            self._end_entry()
            self._entry, self._at = entry, part
        owner = self._owners.run_of(line)
        self._lines.append((line, owner))
        return owner

    def finish(self) -> None:
        """There are no more lines."""
        self._end_entry()

    def runs(self) -> tuple[RunFacts, ...]:
        """In the order of `order`."""
        return tuple(self._lives[run].facts() for run in self.order)

    def part_of(self, run: str) -> int:
        """In which history a run of `order` is."""
        return self._lives[run].part

    def refusals(self) -> tuple[RefusalGroup, ...]:
        """The most frequent kind first."""
        return self._tally.groups()

    def timeline(self) -> tuple[Bucket, ...]:
        """From the first entry to the last."""
        return self._timeline.buckets()

    # --- one entry -----------------------------------------------------------------------------------------

    def _end_entry(self) -> None:
        """All parts of an entry are there: what the step was can be told only from them together."""
        lines, self._lines = self._lines, []
        if not lines:
            return
        unix_ms = int(self._entry.partition("-")[0])
        if not self.began_unix_ms:
            self.began_unix_ms = unix_ms
        ms = unix_ms - self.began_unix_ms
        self._timeline.reach(ms)
        of_run: dict[str | None, list[Line]] = {}
        for line, owner in lines:
            of_run.setdefault(owner, []).append(line)
        for owner, own in of_run.items():
            entry = entry_of(self._entry, tuple(own))
            if owner is None:
                self._note_batch(entry, ms)
            else:
                self._note_run(self._life(owner), entry, ms)
            self._note_refusals(own, owner, ms)

    def _life(self, run: str) -> _Life:
        life = self._lives.get(run)
        if life is None:
            life = self._lives[run] = _Life(run, self._at)
        return life

    def _note_batch(self, entry: Entry, ms: int) -> None:
        if entry.command == "restarted" and entry.granted:
            for life in self._lives.values():
                if life.part == self._at:
                    self._let_go(life, ms)
        if any(line.ends_batch for line in entry.lines):
            self._ends.setdefault(self._at, entry.ms)

    def _note_run(self, life: _Life, entry: Entry, ms: int) -> None:
        for line in entry.lines:
            if line.fence == "ledger":
                _bill(life, line)
        if (noted := _NOTES.get(entry.command)) is not None:
            noted(self, life, entry, ms)

    def _note_refusals(self, lines: Iterable[Line], owner: str | None, ms: int) -> None:
        for line in filter(is_refusal, lines):
            who = line.envelope.get("consumer")
            self._timeline.note(ms, Happened.REFUSED)
            if owner is not None:
                life = self._life(owner)
                life.refusals += 1
                who = who or life.holders.get(str(given(line, "lease_id")))
            self._tally.add(line, ms, clipped(owner or ""), clipped(str(who or "")))

    # --- what an entry means for a run ---------------------------------------------------------------------

    def _begin(self, life: _Life, state: str) -> None:
        if not life.state:
            life.part = self._at
            self._orders[self._at].append(life.run)
        life.state = state

    def _admit(self, life: _Life, entry: Entry, ms: int) -> None:
        if (named := _committed(entry, "histogram.abandon")) is not None:  # it was a hole where it is taken over from
            self._end_as_hole(life, named, ms)
            return
        if _committed(entry, "judge.mint") is None:
            return
        self._begin(life, _QUEUED)
        life.admitted_ms = ms
        self._timeline.note(ms, Happened.ADMITTED)
        if entry.text("source"):
            self._seal(life, ms)

    def _claim(self, life: _Life, entry: Entry, ms: int) -> None:
        named = _committed(entry, "histogram.abandon")
        if named is None and not entry.granted:
            return
        if life.held:
            self._timeline.note(ms, Happened.PREEMPTED)
            self._let_go(life, ms)
        if named is not None:
            self._end_as_hole(life, named, ms)
            return
        life.held, life.state, life.worker = True, _RUNNING, clipped(entry.text("consumer"))
        life.holders[entry.text("lease_id")] = life.worker
        life.deliveries += 1
        life.leased_ms = ms if life.leased_ms is None else life.leased_ms
        self._timeline.note(ms, Happened.LEASED)
        self._timeline.note(ms, Happened.TAKEN)

    def _yield(self, life: _Life, entry: Entry, ms: int) -> None:
        if entry.granted:
            life.state = _QUEUED
            self._let_go(life, ms)

    def _sealed(self, life: _Life, entry: Entry, ms: int) -> None:
        if entry.granted:
            self._let_go(life, ms)
            self._seal(life, ms)

    def _seal(self, life: _Life, ms: int) -> None:
        life.state, life.sealed_ms = _SEALED, ms
        self._timeline.note(ms, Happened.SEALED)

    def _end(self, life: _Life, entry: Entry, ms: int) -> None:
        if (named := _committed(entry, "histogram.abandon")) is not None:
            self._end_as_hole(life, named, ms)

    def _end_as_hole(self, life: _Life, named: Line, ms: int) -> None:
        self._let_go(life, ms)
        self._begin(life, _HOLE)
        life.hole, life.ended_ms = clipped(str(given(named, "why"))), ms
        self._timeline.note(ms, Happened.ENDED)

    def _score_claim(self, life: _Life, entry: Entry, ms: int) -> None:
        if entry.granted:
            life.state, life.scorer = _SCORING, clipped(entry.text("consumer"))
            life.holders[entry.text("lease_id")] = life.scorer

    def _score(self, life: _Life, entry: Entry, ms: int) -> None:
        scored = _committed(entry, "histogram.score")
        if scored is not None:
            life.bin = life.state = clipped(str(given(scored, "bin")))
            life.value, life.ended_ms = clipped(str(given(scored, "value"))), ms
            self._timeline.note(ms, Happened.ENDED)
        elif _committed(entry, "histogram.abandon") is not None:
            self._end(life, entry, ms)
        elif life.state == _SCORING and _is_parked(entry):
            life.state = _SEALED

    def _unscore(self, life: _Life, entry: Entry, ms: int) -> None:
        if entry.granted and life.state == _SCORING:
            life.state = _SEALED

    def _let_go(self, life: _Life, ms: int) -> None:
        if life.held:
            life.held = False
            self._timeline.note(ms, Happened.LET_GO)


def _committed(entry: Entry, by: str) -> Line | None:
    return next((line for line in entry.parts(by) if line.verb == "commit"), None)


def _is_parked(entry: Entry) -> bool:
    """Another judge answered than was bound, and the suite's policy is that somebody decides about it."""
    refusal = entry.refusal
    if refusal is None or (refusal.fence, refusal.op) != ("judge", "commit"):
        return False
    return refusal.verb != "reject" and (refusal.reason or "").endswith("_mismatch")


def _bill(life: _Life, line: Line) -> None:
    """What a request has cost so far. Chunks count also when they came too late, and settling has the last word."""
    step, number = given(line, "step"), given(line, "attempt")
    if not isinstance(step, str) or not isinstance(number, int):
        return
    spent = life.attempts.setdefault((step, number), _Spent())
    if line.op == "chunk" and "billed" in line.answer:
        spent.billed, spent.durable = whole(line.answer["billed"]), whole(line.answer.get("durable"))
    elif line.op == "reconcile" and line.verb == "commit":
        spent.billed = whole(given(line, "gateway_billed"))


_NOTES: Mapping[str, Callable[[Lives, _Life, Entry, int], None]] = {
    "abandon": Lives._end,
    "admit": Lives._admit,
    "adopt": Lives._admit,
    "claim": Lives._claim,
    "hole": Lives._end,
    "rebind": Lives._unscore,
    "score": Lives._score,
    "score_claim": Lives._score_claim,
    "score_hole": Lives._end,
    "score_yield": Lives._unscore,
    "seal": Lives._sealed,
    "yield": Lives._yield,
}
