"""What a batch came to: the one object behind the closing screen, `--json`, and the gate.

Every number of a closed batch is derived from its snapshot, which is computed again from the rows each time
that somebody looks, and must have the name under which the batch was closed. An open batch has counts, but no
pass rate: a share of "what happens to be finished" favours the fast runs, and moves.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bus.errors import ViolationError
from bus.port import BatchInfo, BatchStatus, Counters
from bus.snapshot import Snapshot
from bus.types import BatchId, Plane, RunId
from workers.brief import brief
from workers.gating.gate import Compared, GateRules, GateVerdict, GateWord, Seen, judge_gate
from workers.gating.visible import visible
from workers.results import numbers
from workers.results.numbers import Interval
from workers.statistics.results import Results
from workers.statistics.trials import MOST_K, over_cases, pass_all, pass_any

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Outcome", "Tokens", "model_of", "render", "some_of", "trials_told"]

_MANY_HOLES = 12
"""So many lines of holes on the screen; `--json` and the export have them all."""
_ALIKE = 3
"""More holes than that with one reason and the same last words are one line: the cause is one."""
_DETAIL = 100
"""Characters of what a hole's solver or scorer said; the export has up to 2,000."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a batch spent. `spent = durable + orphan`; `budget` is None when the suite sets none."""

    spent: int = 0
    durable: int = 0
    budget: int | None = None
    estimated: int = 0
    """Of those spent: by a guess, where the endpoint gave no figure."""

    @property
    def orphan(self) -> int:
        """Paid for, and not part of any accepted result."""
        return self.spent - self.durable


@dataclass(frozen=True, slots=True)
class Outcome:
    """A batch at one moment. Counts are facts; rate, interval and bounds derive from a closed set only."""

    batch: BatchId
    plane: Plane
    status: BatchStatus
    snapshot_id: str | None
    """None until the batch has closed, and for one that ended below its quorum."""
    intended: int
    quorum: int
    accepted: int
    bins: Mapping[str, int]
    """In the order in which the suite declares them: the first is the one that passes."""
    holes: Mapping[str, int]
    """Reason to count."""
    hole_runs: Mapping[RunId, str]
    """Run to reason; empty while the batch is open."""
    hole_details: Mapping[RunId, str]
    """Run to what its solver or scorer said last, such as `KeyError: '/'`, where it said anything. Not in the JSON."""
    rejects: Mapping[str, int]
    """Refusals by reason. They depend on who was late, so they stand beside the snapshot and not in it."""
    runs: Mapping[RunId, str]
    """Scored run to its bin, sorted by run; empty while the batch is open."""
    tokens: Tokens
    rules: GateRules
    compared: Compared | None = None
    """With the baseline that the rules name, where that is at hand."""
    first_of: int | None = None
    """Runs of the whole suite, when these are its first ones only …"""
    chosen: bool = False
    """… or those of chosen cases."""
    model: str = ""
    """Which one was asked, and where; empty where the suite asks none. Neither this nor the next is in the JSON."""
    judge: str = ""
    """Likewise, of the model that judged."""

    @classmethod
    def of(
        cls,
        info: BatchInfo,
        counters: Counters,
        snapshot: Snapshot | None,
        hole_details: Mapping[RunId, str] | None = None,
    ) -> Outcome:
        """Put together what the bus tells. `snapshot` is needed if and only if the batch has ended.

        Raises `ViolationError` when the rows do not give the snapshot under which the batch was closed: then
        nothing that could be shown would be true.
        """
        spec, status = info.spec, counters.status
        if (snapshot is not None) != status.ended:
            raise ValueError(f"batch {spec.batch} is {status}: only an ended batch has a snapshot")
        name = snapshot.snapshot_id if snapshot is not None and status is BatchStatus.CLOSED else None
        if name is not None and name != counters.snapshot_id:
            raise ViolationError(f"batch {spec.batch} closed as {counters.snapshot_id}, but its rows give {name}")
        budget = spec.limits.get("budget")
        limit = None if budget is None else int(budget)
        tokens = Tokens(counters.spent, counters.durable, limit, counters.estimated)
        rules = GateRules.from_mapping(spec.gate)
        if snapshot is None:
            return cls(
                batch=spec.batch,
                plane=info.plane,
                status=status,
                snapshot_id=None,
                intended=counters.intended,
                quorum=counters.quorum,
                accepted=counters.scored,
                bins={name: counters.bins.get(name, 0) for name in spec.bins},
                holes=_by_name(counters.hole_reasons),
                hole_runs={},
                hole_details={},
                rejects=_by_name(counters.refusals),
                runs={},
                tokens=tokens,
                rules=rules,
                first_of=spec.first_of,
                chosen=spec.cases is not None,
                model=model_of(spec.candidate),
                judge=model_of(spec.judge),
            )
        return cls(
            batch=spec.batch,
            plane=info.plane,
            status=status,
            snapshot_id=name,
            intended=snapshot.intended,
            quorum=snapshot.quorum,
            accepted=snapshot.accepted,
            bins=snapshot.bins,
            holes=_by_name(Counter(snapshot.holes.values())),
            hole_runs=snapshot.holes,
            hole_details=hole_details or {},
            rejects=_by_name(counters.refusals),
            runs={row.run: row.bin for row in snapshot.rows},
            tokens=tokens,
            rules=rules,
            first_of=spec.first_of,
            chosen=spec.cases is not None,
            model=model_of(spec.candidate),
            judge=model_of(spec.judge),
        )

    @property
    def size(self) -> str:
        """How many runs, in words: a number over some of a suite's cases must not pass for the suite's."""
        runs = "1 run" if self.intended == 1 else f"{self.intended} runs"
        return ", ".join(filter(None, (runs, some_of(self.first_of, chosen=self.chosen))))

    @property
    def how(self) -> str:
        """How its runs were taken from those of the suite, where it has not all of them."""
        return _how(self.chosen)

    @property
    def state(self) -> str:
        """`open`, `closed` or `inconclusive`."""
        return self.status.shown

    @property
    def cases(self) -> set[str]:
        """Of which a run has ended; none while the batch is open."""
        return {run.rpartition("#")[0] for run in (*self.runs, *self.hole_runs)}

    @property
    def passed(self) -> int:
        """Runs in the bin that passes."""
        return next(iter(self.bins.values()))

    @property
    def hole_count(self) -> int:
        """Runs that ended without a score."""
        return sum(self.holes.values())

    @property
    def pass_rate(self) -> float | None:
        """Passed by scored; None for a batch that is open, or that ended below its quorum."""
        return self.passed / self.accepted if self._has_number else None

    @property
    def interval(self) -> Interval | None:
        """Wilson's 95% interval of the pass rate, or None where there is none."""
        return numbers.wilson(self.passed, self.accepted) if self._has_number else None

    @property
    def bounds(self) -> Interval | None:
        """The rate of all intended runs if every hole had failed, and had passed; None as `pass_rate`."""
        return numbers.bounds(self.passed, self.accepted, self.intended) if self._has_number else None

    @property
    def gate(self) -> GateVerdict:
        """The gate's word by the suite's rules."""
        passing = next(iter(self.bins))
        seen = Seen(self.tokens.spent, compared=self.compared)
        if self.rules.must_pass:
            missed = {run: bin_ for run, bin_ in self.runs.items() if bin_ != passing}
            here = self.cases
            left_out = [name for name in self.rules.must_pass if name not in here]
            seen = replace(seen, not_passed={**missed, **self.hole_runs}, left_out=left_out)
        return judge_gate(self, self.rules, seen)

    @property
    def _has_number(self) -> bool:
        return self.status is BatchStatus.CLOSED and self.accepted > 0

    def as_json(self) -> dict[str, Any]:
        """The object that `--json` of `run` and `gate` writes; its keys are a promise to scripts."""
        interval, limits, gate = self.interval, self.bounds, self.gate
        return {
            "batch": self.batch,
            "plane": self.plane.value,
            "state": self.state,
            "snapshot_id": self.snapshot_id,
            "intended": self.intended,
            **({} if self.first_of is None else {"suite_runs": self.first_of}),
            "quorum": self.quorum,
            "accepted": self.accepted,
            "bins": dict(self.bins),
            "pass_rate": self.pass_rate,
            "interval": None if interval is None else [interval.low, interval.high],
            "bounds": None if limits is None else [limits.low, limits.high],
            "holes": dict(self.holes),
            "rejects": dict(self.rejects),
            "tokens": {
                "spent": self.tokens.spent,
                "durable": self.tokens.durable,
                "orphan": self.tokens.orphan,
                "budget": self.tokens.budget,
            },
            "runs": dict(self.runs),
            "gate": {"passed": gate.passed, "rule": gate.rule or None},
        }


_GATE_STYLE = {GateWord.PASSED: "bold green", GateWord.FAILED: "bold red", GateWord.UNDECIDED: "bold yellow"}


@dataclass(frozen=True, slots=True)
class _Line:
    label: str
    text: str
    note: str = ""
    style: str = ""


def some_of(first_of: int | None, *, chosen: bool) -> str:
    """`the first of the suite's 46`; empty for a batch that has all of its suite's cases."""
    return "" if first_of is None else f"{_how(chosen)} the suite's {first_of}"


def _how(chosen: bool) -> str:
    return "chosen from" if chosen else "the first of"


def model_of(binding: str) -> str:
    """The model in what a candidate or a judge is bound as, `lab-1 at http://…`; empty where there is none."""
    return binding.partition(" ")[2].partition(" as {")[0]  # a judge is bound with what it says of itself, too


def render(outcome: Outcome, console: Console, logs: Path | None = None) -> None:
    """Print what the batch came to: in colour on a terminal, the same words as plain lines elsewhere.

    `logs` is where the processes of this batch have theirs, for whoever wonders about its holes.
    """
    from rich.cells import cell_len  # noqa: PLC0415 - a tenth of a second that `--help` need not pay
    from rich.text import Text  # noqa: PLC0415

    for line in _lines(outcome, logs):
        text = Text().append(f"{line.label:<11}", style="dim").append(visible(line.text), style=line.style)
        if line.note:
            note = visible(line.note)
            # Below, where it would be broken anywhere; a file has no width.
            fits = not console.is_terminal or text.cell_len + 3 + cell_len(note) <= console.width
            text.append("   " if fits else f"\n{'':<13}").append(note, style="dim")
        # Never wrapped or cut: a snapshot id that is broken over two lines cannot be copied.
        console.print(text, soft_wrap=True)


def _lines(outcome: Outcome, logs: Path | None) -> list[_Line]:
    """The screen, as words."""
    gate = outcome.gate
    lines = [_Line("batch", f"{outcome.batch} ({outcome.plane})", f"{outcome.state}, {outcome.size}", "bold")]
    lines += [_Line(*each) for each in (("model", outcome.model), ("judge", outcome.judge)) if each[1]]
    rate, interval, limits = outcome.pass_rate, outcome.interval, outcome.bounds
    if rate is None or interval is None or limits is None:
        lines.append(_Line("pass rate", "none", "; ".join(gate.why)))
    else:
        scored = f"{outcome.passed} of {outcome.accepted} scored runs passed"
        lines += [
            _Line("pass rate", f"{rate:.4f}", scored, "bold"),
            _Line("interval", _span(interval), "Wilson, 95%"),
            _Line("bounds", _span(limits), "had every hole failed, had every hole passed"),
            *_trials(outcome),
        ]
    lines.append(_Line("bins", _counts(outcome.bins)))
    lines.append(_Line("holes", _counts(outcome.holes), style="red" if outcome.holes else ""))
    lines += _holes(outcome)
    if outcome.hole_runs and logs is not None:
        lines.append(_Line("", f"  logs in {logs}"))
    aside = "none of them entered the result" if outcome.rejects else ""
    lines.append(_Line("refusals", _counts(outcome.rejects), aside))
    tokens = outcome.tokens
    if tokens.spent or tokens.budget is not None:
        of = "" if tokens.budget is None else f" of {tokens.budget:,}"
        guessed = f", {tokens.estimated:,} of them estimated" if tokens.estimated else ""
        aside = f"{tokens.orphan:,} for nothing that counts{guessed}"
        lines.append(_Line("tokens", f"{tokens.spent:,} spent{of}", aside))
    lines.append(_Line("snapshot", outcome.snapshot_id or "none"))
    without = rate is None  # then it was said where the rate would stand
    reason = gate.rule if without else "; ".join(gate.why) or gate.rule
    lines.append(_Line("gate", gate.word.value, reason, _GATE_STYLE.get(gate.word, "")))
    width = max((len(one.rule) for one in gate.lines), default=0)
    for one in gate.lines if len(gate.lines) > 1 else ():
        lines.append(_Line("", f"  {one.rule:<{width}}  {one.measured}  {one.bound}", one.verdict))
    return lines


def _holes(outcome: Outcome) -> list[_Line]:
    """The first by name, each with what was said at its end, and where the rest of both is."""
    lines: list[_Line] = []
    cut, told, details = "", 0, outcome.hole_details
    alike = Counter((why, details[run]) for run, why in outcome.hole_runs.items() if details.get(run))
    seen: set[tuple[str, str]] = set()
    for run, why in outcome.hole_runs.items():
        cause = (why, details.get(run, ""))
        if cause in seen:
            continue
        if len(lines) == _MANY_HOLES:
            break
        others = alike[cause] - 1 if alike[cause] > _ALIKE else 0
        if others:
            seen.add(cause)
        said = brief(cause[1], _DETAIL)
        cut = cut or (run if said != brief(cause[1], len(cause[1]) + 1) else "")
        named = f"  {run}" + (f" and {others} others" if others else "")
        lines.append(_Line("", named, f"{why}   {said}" if said else why))
        told += 1 + others
    more = len(outcome.hole_runs) - told
    if more > 0 or seen:
        reasons = " ".join(f"--only {why}" for why in outcome.holes)
        all_ = f"all of them: evalbus show {outcome.batch} {reasons}" if details else ""
        lines.append(_Line("", f"  and {more} more" if more else "  …", all_))
    if cut:
        named = f"-- {shlex.quote(cut)}" if cut.startswith("-") else shlex.quote(cut)
        lines.append(_Line("", "  …", f"in full: evalbus show {outcome.batch} {named}"))
    return lines


def trials_told(outcome: Outcome) -> list[tuple[str, str, str]]:
    """What several trials of a case tell, and how much less than as many cases: a label, the figures, a note each."""
    return [(line.label, line.text, line.note) for line in _trials(outcome)]


def _trials(outcome: Outcome) -> list[_Line]:
    results = Results.of(outcome.runs, outcome.hole_runs, next(iter(outcome.bins)))
    if results.trials <= 1:
        return []
    found, lines = results.clustered(), []
    if found is not None and found.error is not None:
        lines.append(
            _Line("std error", f"{found.error:.4f}", f"over {found.clusters} cases: their trials hang together")
        )
    for name, estimator in (("pass@", pass_any), ("pass^", pass_all)):
        ks = range(1, min(results.trials, MOST_K) + 1)
        estimates = [one for k in ks if (one := over_cases(results, k, estimator)) is not None]
        shown = " · ".join(f"{name}{one.k} {one.value:.4f}" for one in estimates)
        few = min(one.cases for one in estimates)
        aside = "" if few == len(results.cases) else f"over {few} of {len(results.cases)} cases: the others have holes"
        lines.append(_Line(f"{name}k", shown, aside))
    return lines


def _by_name(counts: Mapping[str, int]) -> dict[str, int]:
    """Sorted, so that two readers of one batch write the same bytes; zero counts are left out."""
    return {name: counts[name] for name in sorted(counts) if counts[name]}


def _counts(counts: Mapping[str, int]) -> str:
    return " · ".join(f"{name} {count}" for name, count in counts.items()) or "none"


def _span(interval: Interval) -> str:
    return f"{interval.low:.4f} to {interval.high:.4f}"
