"""`evalbus calibrate`: repeats of one candidate, and how often the gate says something else of them."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bus.errors import InputError
from bus.port import BatchStatus
from tests.gated import found
from workers.gating.calibrating import calibrated, check_targets, repeat, show
from workers.gating.sources import Found
from workers.job_options import JobOptions
from workers.processes.interrupt import Interrupted


def repeats(count: int, *, seed: int = 1, rate: float = 0.7, cases: int = 40, **gate: object) -> list[Found]:
    """Of a candidate that passes any case with the same chance."""
    dice = random.Random(seed)
    return [
        found(
            {f"c{case}#1": "pass" if dice.random() < rate else "fail" for case in range(cases)},
            name=f"aa.{number}",
            gate=gate,
        )
        for number in range(count)
    ]


def fixed(passes: Sequence[int], cases: int = 10, **gate: object) -> list[Found]:
    """Batches with so many passes."""
    return [
        found(
            {f"c{case}#1": "pass" if case < many else "fail" for case in range(cases)}, name=f"aa.{number}", gate=gate
        )
        for number, many in enumerate(passes)
    ]


def test_flips_are_counted_rule_by_rule_and_for_the_word() -> None:
    """Rates 0.7, 0.7, 0.6, 0.5: two of four meet 0.7, so four of six pairs differ."""
    one = calibrated(fixed([7, 7, 6, 5], min_pass_rate=0.7, max_holes=0), {})
    assert one.words == {"passed": 2, "failed": 2}
    assert one.gate is not None
    assert [one.gate.share, one.rules["pass_rate >= 0.7"].share] == pytest.approx([2 / 3, 2 / 3])
    assert one.rules["holes <= 0"].share == 0.0
    assert one.rates == (0.7, 0.7, 0.6, 0.5)


def test_batches_of_other_cases_of_a_suite_are_no_repeats() -> None:
    """Five of its cases and all of them have one suite's digest, and differ by more than chance."""
    few, (whole, again) = fixed([5], cases=5)[0], fixed([5, 6], cases=6)
    few = replace(few, name="few", outcome=replace(few.outcome, first_of=6))
    said = (
        "few and aa.0 are not repeats of each other: their cases differ, 5 runs, the first of the suite's 6 and 6 runs"
    )
    with pytest.raises(InputError, match=said):
        calibrated([whole, few], {})
    others = found({f"x{case}#1": "pass" for case in range(6)}, name="others")
    with pytest.raises(InputError, match=r"others and aa\.0 are not repeats of each other: their cases differ"):
        calibrated([whole, others], {})
    still = replace(again, outcome=replace(again.outcome, status=BatchStatus.OPEN, runs={}, snapshot_id=None))
    assert calibrated([whole, replace(again, name="c"), replace(still, name="open")], {}).without == ("open",)


def test_theory_and_count_agree_over_many_repeats() -> None:
    """A gate at the very rate of its candidate flips about every second time, and theory says so beforehand."""
    one = calibrated(repeats(300, min_pass_rate=0.7), {}).rules["pass_rate >= 0.7"]
    assert one.expected == pytest.approx(0.5, abs=0.02)
    assert one.share == pytest.approx(one.expected, abs=0.05)
    assert one.interval.low <= one.share <= one.interval.high


def test_a_margin_is_tried_on_every_pair_both_ways() -> None:
    """How often a candidate is called worse than itself, what is expected of that, and a margin that is wide enough."""
    made = repeats(40, min_pass_rate=0.5)
    narrow, wide = calibrated(made, {"margin": 0.0}), calibrated(made, {"margin": 0.3})
    assert narrow.alarm is not None
    assert wide.alarm is not None
    assert narrow.alarm.of == 40 * 39
    assert narrow.alarm.expected == pytest.approx(0.45, abs=0.03)
    assert narrow.alarm.share == pytest.approx(narrow.alarm.expected, abs=0.05)
    assert wide.alarm.share < 0.02
    suggested = calibrated(made, {"margin": narrow.suggested}).alarm
    assert suggested is not None
    assert suggested.share == pytest.approx(0.05, abs=0.04)


def test_a_deterministic_candidate_does_not_flip() -> None:
    """And its theory says so: what is between its cases is no noise."""
    one = calibrated(fixed([7, 7, 7], min_pass_rate=0.7, must_pass=["c0"]), {"margin": 0.0})
    assert (one.noise.spread, one.suggested) == (0.0, 0.0)
    assert [(flip.share, flip.expected) for flip in one.rules.values()] == [(0.0, 0.0), (0.0, 0.0)]
    assert one.alarm is not None
    assert (one.alarm.share, one.alarm.expected) == (0.0, 0.0)


def test_a_floor_is_expected_to_be_met_as_often_as_its_case_passes() -> None:
    """c6 passes in three repeats of four: two repeats differ with 2 * 3/4 * 1/4."""
    one = calibrated(fixed([7, 7, 7, 6], must_pass=["c6"]), {}).rules["must_pass all 1"]
    assert one.said == 3
    assert one.expected == pytest.approx(0.375)


def test_without_rules_there_is_still_the_noise() -> None:
    """Before a gate is written: how far repeats lie apart."""
    one = calibrated(fixed([7, 5]), {})
    assert (one.gate, one.rules, one.alarm, one.words) == (None, {}, None, {"not set": 2})
    assert one.noise.spread > 0


def test_a_verdict_that_is_missing_is_no_flip() -> None:
    """The baseline of their suite is not at hand: the word cannot be compared, the other rule can."""
    one = calibrated(fixed([7, 5], min_pass_rate=0.7, no_worse_than="base.json"), {})
    assert (one.gate, one.words) == (None, {"undecided": 1, "failed": 1})
    assert list(one.rules) == ["pass_rate >= 0.7"]


def test_a_batch_without_a_number_is_named_and_in_no_figure() -> None:
    """One of three ended below its quorum."""
    batches = fixed([7, 6, 5], min_pass_rate=0.7)
    batches[2] = replace(batches[2], outcome=replace(batches[2].outcome, status=BatchStatus.INCONCLUSIVE))
    one = calibrated(batches, {})
    assert (one.batches, one.without) == (("aa.0", "aa.1"), ("aa.2",))
    with pytest.raises(InputError, match="1 of 2 batches closed: two are needed"):
        calibrated(batches[1:], {})


@pytest.mark.parametrize("field", ["candidate", "judge", "suite_digest"])
def test_another_candidate_judge_or_suite_is_a_comparison_and_refused(field: str) -> None:
    """Its flips would be called noise."""
    batches = fixed([7, 6])
    changed: Any = {field: "another"}
    batches[1] = replace(batches[1], **changed)
    with pytest.raises(InputError, match=rf"not repeats of each other: their {field.replace('_', ' ')} differs"):
        calibrated(batches, {})


def test_a_batch_named_twice_is_no_repeat() -> None:
    """It agrees with itself, always."""
    one = fixed([7])[0]
    with pytest.raises(InputError, match="named twice"):
        calibrated([one, one], {})


def test_a_batch_and_its_own_export_are_no_repeats() -> None:
    """One and the same under two names: it would be said never to flip."""
    one = fixed([7])[0]
    with pytest.raises(InputError, match=r"aa\.0\.jsonl and aa\.0 are the same batch"):
        calibrated([one, replace(one, name="aa.0.jsonl")], {})


def test_a_floor_of_a_case_that_is_not_there_is_refused() -> None:
    """A misspelt one would be met every time."""
    with pytest.raises(InputError, match="has no case 'c77'"):
        calibrated(fixed([7, 6]), {"must_pass": ["c77"]})


def test_repeats_without_a_case_in_common_are_not_compared() -> None:
    """What was scored in the one is a hole in the other: there is no difference, and so no alarm."""
    one = found({"a#1": "pass"}, holes={"b#1": "poison"}, name="aa.0")
    other = found({"b#1": "pass"}, holes={"a#1": "poison"}, name="aa.1")
    made = calibrated([one, other], {"margin": 0.1})
    assert (made.alarm, made.margin) == (None, 0.1)
    show(made, Console(file=io.StringIO()))


def test_the_screen_and_the_json_have_all_of_it() -> None:
    """Each rule a row; the interval of so few repeats is wide, and shown."""
    one = calibrated(fixed([7, 7, 6], min_pass_rate=0.7), {"margin": 0.02})
    out = io.StringIO()
    show(one, Console(file=out, width=200))
    text = out.getvalue()
    assert "3 batches of one candidate, 10 scored runs each" in text
    row = next(line.split() for line in text.splitlines() if "pass_rate >=" in line)
    assert row[:7] == ["pass_rate", ">=", "0.7", "2", "of", "3", "0.6667"]
    assert "than itself by more than 0.02" in text
    told = json.loads(json.dumps(one.as_json()))
    assert (told["rates"], told["words"], told["margin"]) == ([0.7, 0.7, 0.6], {"passed": 2, "failed": 1}, 0.02)
    assert told["rules"]["pass_rate >= 0.7"]["said"] == 2


@pytest.mark.parametrize(
    ("targets", "count", "said"),
    [
        (["a"], None, "one batch differs from nothing"),
        (["a", "b"], 3, "2 were named, and --repeats is about one suite"),
    ],
)
def test_what_is_repeated_is_one_suite_and_what_is_compared_two_batches(
    targets: list[str], count: int | None, said: str
) -> None:
    """Anything else is asked back before anything is run."""
    with pytest.raises(InputError, match=said):
        check_targets(targets, count)


def test_an_interrupted_calibration_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batches that are closed are not run again: they have names of their own."""
    ran: list[str | None] = []

    def run(options: JobOptions) -> None:
        ran.append(options.batch)
        if len(ran) == 2:
            raise Interrupted("interrupted")

    monkeypatch.setattr("workers.gating.calibrating.run_job", run)
    options = JobOptions(Path("s"), 1, 1, None, None, found({}).outcome.plane, None, None, None)
    with pytest.raises(Interrupted, match="go on with: evalbus calibrate s --repeats 3 --batch aa"):
        repeat(options, "aa", 3, "s")
    assert ran == ["aa.1", "aa.2"]
