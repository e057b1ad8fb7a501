"""`evalbus plan`: figures before anything is spent."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from scipy import stats

from bus.errors import InputError
from bus.port import BatchStatus
from tests.gated import found
from tests.suites import MINIMAL, make_suite
from workers.gating.planning import Plan, PlanOptions, plan_of, show
from workers.gating.sources import Found

GATE = "[gate]\nmin_pass_rate = 0.7\nprice = 2.5\n"


def plan(tmp_path: Path, toml: str = MINIMAL, like: Found | None = None, count: int = 50, **options: Any) -> Plan:  # noqa: ANN401 - as the options take them
    """Of a suite of so many cases."""
    data = "".join(f'{{"id": "c{number}", "target": ""}}\n' for number in range(count))
    return plan_of(make_suite(tmp_path / "suite", toml, **{"cases.jsonl": data}), like, PlanOptions(**options))


def lines(one: Plan) -> list[str]:
    """What it prints."""
    out = io.StringIO()
    show(one, Console(file=out, width=200))
    return out.getvalue().splitlines()


def test_the_size_is_the_suites_or_the_one_that_is_asked_about(tmp_path: Path) -> None:
    """And the quorum goes along."""
    suite = "trials = 2\n" + MINIMAL
    one, other = plan(tmp_path, suite), plan(tmp_path, suite, cases=100, trials=3)
    assert (one.cases, one.trials, one.runs, one.quorum) == (50, 2, 100, 50)
    assert (other.cases, other.trials, other.runs, other.quorum) == (100, 3, 300, 150)


def test_without_a_rate_the_least_certain_one_is_assumed_and_said(tmp_path: Path) -> None:
    """Nothing is promised that another rate would not hold."""
    one = plan(tmp_path)
    assert one.rate == 0.5
    assert "assumed, where a rate is least certain: give --baseline-rate or --like" in lines(one)[1]
    assert (one.detectable or 1) > (plan(tmp_path, rate=0.9).detectable or 1)


def test_the_chance_of_the_gate_is_that_of_the_binomial_distribution(tmp_path: Path) -> None:
    """35 of 50 meet 0.7: at a true rate of 0.75, and at 0.05 below it."""
    one = plan(tmp_path, MINIMAL + GATE, rate=0.75, delta=0.05)
    chances = one.gate["pass_rate >= 0.7"]
    assert chances["same"] == pytest.approx(stats.binom.sf(34, 50, 0.75))
    assert chances["worse"] == pytest.approx(stats.binom.sf(34, 50, 0.70))


def test_a_baseline_rule_has_a_chance_too(tmp_path: Path) -> None:
    """The same candidate passes a margin of nought every second time; to be proved, one in twenty at most."""
    (tmp_path / "suite").mkdir()
    found({f"c{number}#1": "pass" for number in range(50)}, name="base").freeze(tmp_path / "suite" / "base.json")
    rule = '[gate]\nno_worse_than = "base.json"\n'
    same = plan(tmp_path, MINIMAL + rule, rate=0.8, delta=0.1).gate["difference >= 0"]
    assert same["same"] == pytest.approx(0.5)
    assert (same["worse"] or 1) < 0.15
    proved = plan(tmp_path, MINIMAL + rule + "confidence = 0.95\n", rate=0.8).gate["difference >= 0 at confidence 0.95"]
    assert proved == {"same": pytest.approx(0.0405, abs=0.0001), "worse": None}


def test_a_batch_that_was_like_it_gives_rate_correlation_and_tokens(tmp_path: Path) -> None:
    """Tokens of all runs that ended, holes too: they are paid for again."""
    bins = {f"c{number}#{trial}": "pass" if number < 7 else "fail" for number in range(10) for trial in (1, 2)}
    like = found(bins, holes={"h#1": "poison", "h#2": "poison"}, spent=22_000)
    one = plan(tmp_path, MINIMAL + GATE, like)
    some = replace(like, outcome=replace(like.outcome, first_of=460, chosen=True))
    assert plan(tmp_path, like=some).rate_from == "as in nightly, 22 runs, chosen from the suite's 460"
    assert (one.rate, one.correlation, one.tokens_a_run, one.tokens) == (0.7, 1.0, 1_000, 50_000)
    assert one.cost == pytest.approx(0.125)
    text = "\n".join(lines(one))
    assert "0.7000   assumed, as in nightly" in text
    assert "50,000   1,000 a run, as in nightly, retries included; no budget is set" in text


def test_a_budget_that_is_too_small_is_told_before_it_is_spent(tmp_path: Path) -> None:
    """How many runs it is enough for, and what it costs at most."""
    one = plan(tmp_path, "budget = 30_000\n" + MINIMAL + GATE, tokens=1_000)
    text = "\n".join(lines(one))
    assert "the budget is enough for about 30 runs; the others would be over_budget" in text
    assert one.most_cost == pytest.approx(0.075)
    assert "the budget is 30,000" in "\n".join(lines(plan(tmp_path, "budget = 30_000\n" + MINIMAL)))


def test_what_no_design_of_this_size_finds_is_said(tmp_path: Path) -> None:
    """Four cases."""
    assert "none: not even a drop to 0 would be found" in lines(plan(tmp_path, count=4))[4]


def test_the_json_has_every_figure(tmp_path: Path) -> None:
    """And can be written as it is."""
    told = plan(tmp_path, MINIMAL + GATE, rate=0.8, delta=0.1, tokens=100.0).as_json()
    assert json.loads(json.dumps(told)) == told
    assert (told["runs"], told["tokens"], told["price"], told["delta"]) == (50, 5_000, 2.5, 0.1)
    assert told["cases_for_delta"] > 50
    assert None not in {name: value for name, value in told.items() if name not in ("budget", "most_cost")}.values()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rate": 1.5}, "--baseline-rate is 1.5 (a number from 0 to 1)"),
        ({"rate": float("nan")}, "--baseline-rate is nan"),
        ({"delta": 0.0}, "--delta is 0 (a number between 0 and 1)"),
        ({"alpha": 1.0}, "--alpha is 1 (a number between 0 and 1)"),
        ({"power": 0.04}, "--power is 0.04, not above --alpha 0.05"),
        ({"rate": 0.2, "delta": 0.3}, "--delta 0.3 is more than the rate to drop from, 0.2"),
        ({"price": -1.0}, "--price is -1 (a number, 0 or more)"),
    ],
)
def test_a_figure_that_cannot_be_is_one_clear_line(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    """Named as it was written."""
    with pytest.raises(InputError) as caught:
        plan(tmp_path, **options)
    assert str(caught.value).startswith(said)


def test_a_batch_without_a_number_is_nothing_to_plan_by(tmp_path: Path) -> None:
    """An open one has a rate of what happens to be finished."""
    with pytest.raises(InputError, match="nightly is open, and has no number to plan by"):
        plan(tmp_path, like=found({"a#1": "pass"}, status=BatchStatus.OPEN))
