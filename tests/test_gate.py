"""The gate's four words, and the exit codes that follow."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus.errors import InputError
from bus.port import BatchStatus
from workers.gating.gate import GateRules, GateVerdict, GateWord, judge_gate


@dataclass(frozen=True)
class Batch:
    """As much of a batch as the gate looks at."""

    passed: int = 8
    accepted: int = 10
    hole_count: int = 0
    status: BatchStatus = BatchStatus.CLOSED
    quorum: int = 5
    intended: int = field(init=False)

    def __post_init__(self) -> None:
        """Every intended run has ended."""
        object.__setattr__(self, "intended", self.accepted + self.hole_count)

    @property
    def pass_rate(self) -> float | None:
        """As an outcome has it: None unless closed."""
        return self.passed / self.accepted if self.status is BatchStatus.CLOSED else None


def judged(batch: Batch, **rules: float) -> GateVerdict:
    """The verdict on a batch under the rules of a suite."""
    return judge_gate(batch, GateRules.from_mapping(rules))


def test_a_batch_that_meets_every_rule_passes() -> None:
    """Both rules hold, the rate exactly: at least means at least."""
    verdict = judged(Batch(passed=8, hole_count=1), min_pass_rate=0.8, max_holes=1)
    assert (verdict.word, verdict.passed, verdict.exit_code) == (GateWord.PASSED, True, 0)
    assert verdict.rule == "pass_rate >= 0.8 and holes <= 1"
    assert verdict.why == ()


def test_a_rate_below_the_rule_fails_and_says_by_what() -> None:
    """The word, the exit code and the reason agree."""
    verdict = judged(Batch(passed=7), min_pass_rate=0.8)
    assert (verdict.word, verdict.passed, verdict.exit_code) == (GateWord.FAILED, False, 1)
    assert verdict.why == ("pass_rate is 0.7000, below 0.8",)


def test_each_rule_that_is_missed_is_named() -> None:
    """Mending the first must not be a surprise by the second."""
    verdict = judged(Batch(passed=7, hole_count=3), min_pass_rate=0.8, max_holes=0)
    assert verdict.why == ("pass_rate is 0.7000, below 0.8", "holes are 3, above 0")


def test_holes_fail_a_gate_however_good_the_rate() -> None:
    """All that was scored passed; what was not scored is what the rule is about."""
    assert judged(Batch(passed=10, hole_count=1), min_pass_rate=0.8, max_holes=0).exit_code == 1


def test_a_near_miss_is_not_rounded_into_the_rule() -> None:
    """59,999 of 100,000 rounds to 0.6000, and is below 0.6: the reason must not read "0.6000, below 0.6"."""
    verdict = judged(Batch(passed=59_999, accepted=100_000), min_pass_rate=0.6)
    assert verdict.why == ("pass_rate is 0.59999, below 0.6",)


@pytest.mark.parametrize(("passed", "accepted", "rate"), [(57, 100, "0.5700"), (10, 18, "0.5556"), (0, 7, "0.0000")])
def test_the_reason_has_the_rate_that_stands_beside_it(passed: int, accepted: int, rate: str) -> None:
    """57 of 100 times 10,000 is a little less than 5,700: cut off, it read 0.5699 under a number of 0.5700."""
    verdict = judged(Batch(passed=passed, accepted=accepted), min_pass_rate=0.9)
    assert f"{passed / accepted:.4f}" == rate
    assert verdict.why == (f"pass_rate is {rate}, below 0.9",)


@settings(deadline=None)  # a busy machine is not a failure
@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_rate_written_as_a_decimal_is_met_exactly(case: tuple[int, int]) -> None:
    """7 of 10 meets 0.7, though neither is a binary fraction; one run fewer does not."""
    passed, accepted = case
    rule = float(repr(passed / accepted))
    assert judged(Batch(passed=passed, accepted=accepted), min_pass_rate=rule).passed is True
    if passed:
        assert judged(Batch(passed=passed - 1, accepted=accepted), min_pass_rate=rule).passed is False


@pytest.mark.parametrize("status", [BatchStatus.OPEN, BatchStatus.DRAINED])
def test_an_open_batch_is_neither_green_nor_red(status: BatchStatus) -> None:
    """Ten of ten so far, and the slow ones still run: whoever released on that would be released on luck."""
    verdict = judged(Batch(passed=10, status=status), min_pass_rate=0.1)
    assert (verdict.word, verdict.passed, verdict.exit_code) == (GateWord.UNDECIDED, None, 3)
    assert "open" in verdict.why[0]


def test_below_the_quorum_is_undecided_even_without_a_rule() -> None:
    """Too few were scored for a number at all: exit 3, and never the 0 of "no gate is set"."""
    batch = Batch(passed=4, accepted=4, hole_count=6, status=BatchStatus.INCONCLUSIVE)
    verdict = judged(batch)
    assert (verdict.word, verdict.passed, verdict.exit_code) == (GateWord.UNDECIDED, None, 3)
    assert verdict.why == ("4 of 10 runs were scored, the quorum is 5",)


def test_a_closed_batch_without_rules_has_no_word_and_exits_zero() -> None:
    """Nothing was asked, so nothing is answered; `passed` is not claimed."""
    verdict = judged(Batch(passed=0))
    assert (verdict.word, verdict.passed, verdict.rule, verdict.exit_code) == (GateWord.NOT_SET, None, "", 0)


def test_rules_are_read_as_a_server_may_give_them_back() -> None:
    """A whole number may come back as a float, a rate as an integer."""
    assert GateRules.from_mapping({"min_pass_rate": 1, "max_holes": 2.0}) == GateRules(1.0, 2)
    assert GateRules.from_mapping({}) == GateRules()


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"min_pas_rate": 0.5}, "gate.min_pas_rate is not a rule (did you mean min_pass_rate?)"),
        (
            {"colour": 1},
            "gate.colour is not a rule (known: min_pass_rate, max_holes, max_cost, price, no_worse_than, margin, "
            "confidence, must_pass)",
        ),
        ({"min_pass_rate": 60}, "gate.min_pass_rate is 60 (a number from 0 to 1)"),
        ({"min_pass_rate": float("nan")}, "gate.min_pass_rate is nan (a number from 0 to 1)"),
        ({"min_pass_rate": True}, "gate.min_pass_rate is True (a number from 0 to 1)"),
        ({"max_holes": -1}, "gate.max_holes is -1 (a whole number, 0 or more)"),
        ({"max_holes": 0.5}, "gate.max_holes is 0.5 (a whole number, 0 or more)"),
        ({"max_holes": float("inf")}, "gate.max_holes is inf (a whole number, 0 or more)"),
    ],
)
def test_a_rule_that_cannot_be_is_one_clear_line(rules: dict[str, float], message: str) -> None:
    """60 for 60% would fail every batch for ever, a misspelt rule would pass every one."""
    with pytest.raises(InputError) as caught:
        GateRules.from_mapping(rules)
    assert str(caught.value) == message
