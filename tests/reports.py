"""Facts for reports, made up: what a page shows is tested apart from how it was derived.

facts(80)                    # a closed batch with a hole of each kind, refusals, tokens, what was prevented
list(details(facts(80)))     # its runs, each with words, a picture and a transcript
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from playwright.async_api import Page

from bus.policies import Claim, Prevented, Proof, RatePoint
from bus.port import BatchStatus
from bus.types import BatchId, Plane, RunId
from tests.explained import line
from workers.explaining import svg
from workers.explaining.steps import story_of
from workers.explaining.why import explained
from workers.gating.gate import GateRules
from workers.reporting.facts import Bucket, Event, Facts, Refusal, RefusalGroup, RunDetail, RunFacts, Tokens
from workers.reporting.page import write_page
from workers.results.outcome import Outcome
from workers.results.outcome import Tokens as Spent

__all__ = ["BEGAN", "details", "facts", "in_progress", "inconclusive", "renamed", "texts", "took", "written"]

BEGAN = 1_764_453_600_000
_GROUPS = (
    ("transcript", "append", "stale_gen", 61),
    ("run", "claim", "not_owner", 14),
    ("histogram", "score", "stale_epoch", 7),
    ("judge", "observe", "judge_mismatch", 3),
    ("ledger", "reserve", "over_budget", 1),
)


def facts(count: int, *, seed: int = 1) -> Facts:
    """A closed batch of `count` runs: one in 25 is a hole, one in 9 was delivered again."""
    dice = random.Random(seed)
    runs = tuple(_run(number, dice) for number in range(count))
    last = max(run.ended_ms or 0 for run in runs)
    return Facts(
        outcome=_outcome(runs),
        source="nightly.jsonl.zst",
        began_unix_ms=BEGAN,
        ended_unix_ms=BEGAN + last + 40,
        head="a303a6364523d1237de7864982f79619c3d5cee5ab34f1301e42f09ea0518937",
        entries=count * 31,
        runs=runs,
        refusals=tuple(_group(*group, runs) for group in _GROUPS),
        timeline=_timeline(runs, last),
        tokens=Tokens(count * 1_900, count * 1_640, count * 260, None, 0, count * 2_400),
        prevented=_prevented(runs, last),
    )


def in_progress(count: int) -> Facts:
    """The same batch while it is open: its last quarter has not ended."""
    whole = facts(count)
    states = ("queued", "running", "sealed", "scoring")
    ended = count - count // 4
    runs = tuple(
        run if number < ended else replace(run, state=states[number % 4], bin=None, hole=None, value="", ended_ms=None)
        for number, run in enumerate(whole.runs)
    )
    closed = _outcome(runs)
    outcome = replace(closed, status=BatchStatus.OPEN, snapshot_id=None, hole_runs={}, runs={}, intended=count)
    return replace(whole, outcome=outcome, runs=runs, ended_unix_ms=None, prevented=())


def inconclusive(count: int) -> Facts:
    """A batch that ended below its quorum: it has no number, and never will have."""
    whole = facts(count)
    outcome = replace(whole.outcome, status=BatchStatus.INCONCLUSIVE, snapshot_id=None, quorum=count)
    return replace(whole, outcome=outcome, prevented=())


def renamed(whole: Facts, name: Callable[[str], str]) -> Facts:
    """The same with every text that is somebody else's changed: cases, workers, reasons, what was presented."""
    groups = tuple(
        replace(
            group,
            samples=tuple(
                replace(one, run=name(one.run), who=name(one.who), envelope={name("run"): name(one.run)})
                for one in group.samples
            ),
        )
        for group in whole.refusals
    )
    runs = tuple(
        replace(run, run=name(run.run), case=name(run.case), value=name(run.value), worker=name(run.worker))
        for run in whole.runs
    )
    prevented = tuple(
        replace(
            one,
            rule=name(one.rule),
            claims=tuple(
                replace(claim, proofs=tuple(replace(proof, says=name(proof.says)) for proof in claim.proofs))
                for claim in one.claims
            ),
        )
        for one in whole.prevented
    )
    return replace(whole, source=name(whole.source), runs=runs, refusals=groups, prevented=prevented)


def details(whole: Facts) -> Iterator[RunDetail]:
    """In the order of the runs. Pictures are real ones, of a story told by hand."""
    for number, run in enumerate(whole.runs):
        lines = [
            line(number + 1, "judge.mint", args={"run": run.run, "epoch": 1}, cursor=0, command_id="x", candidate="c"),
            line(number + 2, "transcript.lease", run=run.run, lease_id="L1", entry="7-0", consumer=run.worker),
            line(number + 9, "transcript.append", run=run.run, lease_id="L1", gen=1, conversation=0, events=1),
            line(number + 9, "transcript.append", "reject stale_gen", run=run.run, lease_id="L0", gen=0, events=1),
        ]
        story = story_of(whole.outcome.batch, run.run, lines)
        events = (
            Event(1, 1, "model", f"user: solve {run.case}\nassistant: def solve(): return {number}"),
            Event(2, 1, "note", "a note of the solver"),
            Event(3, 1, "answer", f"the answer of {run.case}"),
        )
        yield RunDetail(run.run, tuple(explained(story)), svg.draw(story, styled=False), events)


def written(file: Path, whole: Facts, told: Iterator[RunDetail] | None = None) -> Path:
    """The page of these facts, in a file."""
    with file.open("wb") as out:
        write_page(whole, details(whole) if told is None else told, out)
    return file


def took(run: RunFacts) -> int:
    """Milliseconds from its admission to its end."""
    return (run.ended_ms or 0) - (run.admitted_ms or 0)


async def texts(page: Page, column: int) -> list[str]:
    """A column of the page's table of runs as it is shown, from above."""
    return await page.locator(f"#table tbody tr > :nth-child({column})").all_inner_texts()


def _run(number: int, dice: random.Random) -> RunFacts:
    case, trial = f"{dice.choice(('interval', 'graph', 'parser', 'ledger'))}_{number // 3:03}", number % 3 + 1
    hole = dice.choice(("poison", "solver_error", "solver_timeout")) if number % 25 == 24 else None
    bin_name = None if hole else ("pass" if dice.random() < 0.83 else "fail")
    deliveries = dice.choice((2, 3, 4)) if number % 9 == 4 else 1
    admitted = number * 140
    leased = admitted + dice.randrange(20, 900)
    sealed = leased + deliveries * dice.randrange(1_200, 9_000)
    ended = sealed + dice.randrange(80, 2_000)
    return RunFacts(
        run=f"{case}#{trial}",
        case=case,
        trial=trial,
        state=bin_name or "hole",
        bin=bin_name,
        hole=hole,
        value="" if hole else ("1" if bin_name == "pass" else "0"),
        deliveries=deliveries,
        refusals=(deliveries - 1) * 2,
        spent=dice.randrange(600, 3_200) * deliveries,
        durable=600,
        admitted_ms=admitted,
        leased_ms=leased,
        sealed_ms=None if hole else sealed,
        ended_ms=ended,
        worker=f"worker-{number % 7}",
        scorer="" if hole else f"scorer-{number % 2}",
    )


def _outcome(runs: tuple[RunFacts, ...]) -> Outcome:
    bins = Counter(run.bin for run in runs if run.bin)
    holes = {RunId(run.run): run.hole for run in runs if run.hole}
    return Outcome(
        batch=BatchId("nightly"),
        plane=Plane.LIVE,
        status=BatchStatus.CLOSED,
        snapshot_id="49cdcb93d3d4b2b62f4e42be70db4d7031b4109850aeb15a45a9d28b1dc462da",
        intended=len(runs),
        quorum=len(runs) // 2,
        accepted=bins.total(),
        bins={"pass": bins["pass"], "fail": bins["fail"]},
        holes=dict(sorted(Counter(holes.values()).items())),
        hole_runs=holes,
        hole_details={},
        rejects={reason: count for _, _, reason, count in _GROUPS},
        runs={RunId(run.run): run.bin for run in runs if run.bin},
        tokens=Spent(len(runs) * 1_900, len(runs) * 1_640, len(runs) * 2_400),
        rules=GateRules(min_pass_rate=0.75, max_holes=len(runs) // 10),
    )


def _group(fence: str, op: str, reason: str, count: int, runs: tuple[RunFacts, ...]) -> RefusalGroup:
    samples = tuple(
        Refusal(
            entry=f"{BEGAN + 700 * number}-0",
            ms=700 * number,
            run=runs[number % len(runs)].run,
            who=f"worker-{number % 7}",
            envelope={"schema": 1, "batch": "nightly", "plane": "live", "lease_id": "7c1f" * 8, "gen": 1 + number % 3},
            args={"events": 1, "receipts": 0},
        )
        for number in range(min(count, 50))
    )
    return RefusalGroup(fence, op, reason, count, samples)


def _timeline(runs: tuple[RunFacts, ...], last: int) -> tuple[Bucket, ...]:
    width = last // 120 + 1
    buckets = []
    for start in range(0, last + 1, width):
        end = start + width

        def within(ms: int | None, start: int = start, end: int = end) -> bool:
            return ms is not None and start <= ms < end

        again = [run for run in runs if run.deliveries > 1 and within((run.leased_ms or 0) + 1_000)]
        buckets.append(
            Bucket(
                start,
                end,
                admitted=sum(within(run.admitted_ms) for run in runs),
                leased=sum(within(run.leased_ms) for run in runs) + len(again),
                preempted=len(again),
                refused=2 * len(again),
                sealed=sum(within(run.sealed_ms) for run in runs),
                ended=sum(within(run.ended_ms) for run in runs),
                running=sum((run.leased_ms or 0) < end and (run.sealed_ms or run.ended_ms or 0) >= end for run in runs),
            )
        )
    return tuple(buckets)


def _prevented(runs: tuple[RunFacts, ...], last: int) -> tuple[Prevented, ...]:
    proofs = tuple(
        Proof(runs[number].run, (f"{BEGAN + number}-0/2", f"{BEGAN + number + 90}-0"), "scored pass, refused as fail")
        for number in range(min(3, len(runs)))
    )
    ended = sorted((run.ended_ms or 0, run.bin == "pass") for run in runs if run.bin)
    passed, points = 0, []
    for number, (ms, good) in enumerate(ended, start=1):
        passed += good
        points.append(RatePoint(BEGAN + ms, passed, number))
    return (
        Prevented(
            "first-200",
            "Whatever arrives first for a run is taken, whoever sends it.",
            (
                Claim("verdicts_flipped", len(proofs), len(ended), "verdicts", proofs),
                Claim("transcripts_mixed", 0, len(runs), "transcripts", ()),
            ),
            (),
        ),
        Prevented(
            "mutable-mean",
            "Each verdict that arrives counts, out of what has arrived so far; nothing closes.",
            (Claim("verdicts_counted_twice", len(proofs), len(ended), "verdicts", proofs),),
            tuple(points),
        ),
    )
