"""The rules of the gate beside rate and holes: cost, a floor for a case, a baseline; and where they are declared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bus.errors import InputError
from bus.port import BatchStatus
from bus.types import BatchId
from tests.gated import found
from tests.suites import MINIMAL, make_suite
from workers.batch_spec import spec_of
from workers.gating.baseline import with_own_baseline
from workers.gating.command import GateOptions, check_options, judge
from workers.gating.gate import GateVerdict, GateWord
from workers.gating.groups import fields_of
from workers.gating.rules import GateRules

BOTH = {"a#1": "pass", "b#1": "pass", "c#1": "fail", "d#1": "fail"}
WORSE = BOTH | {"b#1": "fail"}


def verdict(bins: dict[str, str], before: dict[str, str] | None = None, **rules: Any) -> GateVerdict:  # noqa: ANN401 - any rule's value
    """Of a batch under rules of the command line; `before`: its baseline."""
    if before is not None:
        rules = {"no_worse_than": "base"} | rules
    other = None if before is None else found(before, name="base")
    return judge(found(bins), other, GateOptions(rules=rules)).outcome.gate


# --- cost -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "word"), [(5.0, GateWord.PASSED), (4.99, GateWord.FAILED)])
def test_the_cost_is_what_all_tokens_cost_those_for_nothing_too(most: float, word: GateWord) -> None:
    """Two million tokens at 2.50 a million: exactly 5."""
    one = judge(found(BOTH, spent=2_000_000), None, GateOptions(rules={"max_cost": most, "price": 2.5})).outcome.gate
    assert one.word is word
    (line,) = one.lines
    assert (line.rule, line.measured, line.bound) == ("cost", "5.0000", f"<= {most:g}")


def test_a_cost_without_a_price_is_asked_back() -> None:
    """Tokens are not money, and a default would be somebody else's price."""
    with pytest.raises(InputError, match=r"--max-cost needs a price"):
        verdict(BOTH, max_cost=1.0)


# --- a floor for a case -----------------------------------------------------------------------------------


def test_a_case_that_must_pass_fails_the_gate_by_itself() -> None:
    """The rate is met; the one case that everybody sees in a demonstration is not."""
    one = verdict(BOTH, min_pass_rate=0.5, must_pass=["c"])
    assert (one.word, one.why) == (GateWord.FAILED, ("must pass, and did not: c#1 fail",))
    assert verdict(BOTH, min_pass_rate=0.5, must_pass=["a", "b"]).word is GateWord.PASSED


def test_every_trial_of_it_must_pass_and_a_hole_is_no_pass() -> None:
    """Two of three is not "this one must pass", and a case that nobody scored did not."""
    bins = {"a#1": "pass", "a#2": "pass", "b#1": "pass"}
    one = judge(found(bins, holes={"a#3": "poison"}), None, GateOptions(rules={"must_pass": ["a", "b"]})).outcome.gate
    assert (one.word, one.why) == (GateWord.FAILED, ("must pass, and did not: a#3 poison",))
    assert one.lines[0].measured == "1 of 2"


def test_a_thousand_runs_that_had_to_pass_are_not_a_thousand_names() -> None:
    """Five, and how many more."""
    bins = {f"a#{trial}": "fail" for trial in range(1, 9)}
    (why,) = verdict(bins, must_pass=["a"]).why
    assert why == "must pass, and did not: a#1 fail, a#2 fail, a#3 fail, a#4 fail, a#5 fail and 3 more"


def test_a_floor_that_was_left_out_is_undecided_unless_another_case_failed() -> None:
    """A batch of some of the suite's cases: that one of them must pass is not met by leaving it out, nor an error."""

    def of(**bins: str) -> GateVerdict:
        one = found({f"{case}#1": bin_ for case, bin_ in bins.items()}, gate={"must_pass": ["a", "c"]})
        return judge(one, None, GateOptions()).outcome.gate

    one = of(a="pass", b="fail")
    assert (one.word, one.exit_code, one.why) == (
        GateWord.UNDECIDED,
        3,
        ("must pass, and not among the batch's cases: c",),
    )
    assert (one.lines[0].measured, one.lines[0].bound, one.lines[0].verdict) == ("1 of 2", "all 2", "undecided")
    assert of(b="pass").lines[0].measured == "0 of 2"
    failed = of(a="fail")
    assert (failed.word, failed.lines[0].measured) == (GateWord.FAILED, "0 of 2")
    assert failed.why == ("must pass, and did not: a#1 fail; must pass, and not among the batch's cases: c",)


def test_a_case_that_is_not_there_is_asked_back() -> None:
    """A misspelt floor would be no floor."""
    with pytest.raises(InputError, match=r"batch 'nightly' has no case 'csv_lime' \(did you mean 'csv_line'\?\)"):
        verdict({"csv_line#1": "pass"}, must_pass=["csv_lime"])


def test_cases_are_marked_where_they_stand_and_declared_with_the_batch(tmp_path: Path) -> None:
    """In JSON lines as a field, in CSV as a column, in the gate by name: the batch knows all of them by itself."""
    toml = MINIMAL + '[gate]\nmust_pass = ["c"]\n'
    lines: list[dict[str, object]] = [{"id": "a", "must_pass": True}, {"id": "b", "must_pass": False}, {"id": "c"}]
    data = "".join(json.dumps({"target": "", **one}) + "\n" for one in lines)
    suite = make_suite(tmp_path / "jsonl", toml, **{"cases.jsonl": data})
    assert spec_of(suite, BatchId("b")).gate == {"must_pass": ["a", "c"]}
    assert suite.cases[0].metadata == {"must_pass": True}
    rows = "id,input,target,must_pass\na,1,1,TRUE\nb,2,2,\nc,3,3,false\n"
    suite = make_suite(tmp_path / "csv", MINIMAL.replace("jsonl", "csv"), **{"cases.csv": rows})
    assert suite.gate_rules == {"must_pass": ["a"]}


def test_a_suite_without_a_floor_declares_what_it_always_did(tmp_path: Path) -> None:
    """Nothing new in the declaration of a batch that asks for nothing new."""
    suite = make_suite(tmp_path, MINIMAL + "[gate]\nmin_pass_rate = 0.6\nmax_holes = 0\n")
    assert spec_of(suite, BatchId("b")).gate == {"min_pass_rate": 0.6, "max_holes": 0}
    assert spec_of(make_suite(tmp_path / "none"), BatchId("b")).gate == {}


@pytest.mark.parametrize(
    ("gate", "case", "said"),
    [
        ('must_pass = ["x"]', "", "gate.must_pass: there is no case 'x'"),
        ("", ', "must_pass": "perhaps"', ":1: must_pass: 'perhaps' is neither true nor false"),
        ("max_cost = 1", "", "max_cost needs a price"),
        ("margin = 0.1", "", "margin and confidence are about a baseline"),
        ('no_worse_than = "base.json"', "", "gate.no_worse_than: no such file: base.json"),
        ('no_worse_than = "../base.json"', "", "is not a path inside the suite directory"),
        ('no_worse_than = "cases.jsonl"', "", "cases.jsonl: is neither a history nor a snapshot of a batch"),
    ],
)
def test_a_rule_that_cannot_be_stops_the_suite(gate: str, case: str, said: str, tmp_path: Path) -> None:
    """Before anything is spent."""
    with pytest.raises(InputError) as caught:
        make_suite(tmp_path, f"{MINIMAL}[gate]\n{gate}\n", **{"cases.jsonl": f'{{"id": "a", "target": "1"{case}}}\n'})
    assert said in str(caught.value)


# --- a baseline -------------------------------------------------------------------------------------------


def test_no_worse_means_not_below_the_baseline() -> None:
    """One of four cases got worse: the same is met, less is not, and the margin is what may be lost."""
    assert verdict(BOTH, BOTH).word is GateWord.PASSED
    one = verdict(WORSE, BOTH)
    assert (one.word, one.why) == (GateWord.FAILED, ("difference to base is -0.2500, below 0",))
    assert verdict(WORSE, BOTH, margin=0.25).word is GateWord.PASSED
    assert verdict(WORSE, BOTH, margin=0.24).word is GateWord.FAILED


def test_a_difference_of_thirds_meets_the_margin_that_it_is() -> None:
    """Two of three trials instead of all: 2/3 - 1 is a little less than -1/3, and no reason to fail a gate."""
    now = {"a#1": "fail", "a#2": "pass", "a#3": "pass"}
    before = dict.fromkeys(now, "pass")
    assert verdict(now, before, margin=1 / 3).word is GateWord.PASSED
    assert verdict(now, before, margin=0.3333).word is GateWord.FAILED


def test_a_near_miss_of_the_margin_is_not_rounded_into_it() -> None:
    """-0.050025 shown as "-0.0500, below -0.05" explains nothing."""
    bins = {f"c{number}#1": "pass" for number in range(40_000)}
    worse = bins | {f"c{number}#1": "fail" for number in range(2_001)}
    (why,) = verdict(worse, bins, margin=0.05).why
    assert why == "difference to base is -0.050025000000, below -0.05"


def test_with_a_confidence_the_lower_bound_has_to_be_within_the_margin() -> None:
    """Few cases prove little: the same difference passes as it stands, and not when it has to be proved."""
    bins = {f"c{number}#1": "pass" if number % 2 else "fail" for number in range(40)}
    worse = bins | {"c1#1": "fail"}
    assert verdict(worse, bins, margin=0.05).word is GateWord.PASSED
    one = verdict(worse, bins, margin=0.05, confidence=0.95)
    assert one.word is GateWord.FAILED
    assert one.why[0].startswith("the difference's lower bound to base is -0.0")
    assert one.rule == "difference >= -0.05 at confidence 0.95"
    assert verdict(bins, bins, margin=0.1, confidence=0.95).word is GateWord.PASSED
    few = {"c1#1": "pass", "c2#1": "pass", "c3#1": "pass"}
    assert verdict(few, few, margin=0.1, confidence=0.95).word is GateWord.FAILED


def test_a_baseline_that_is_not_at_hand_leaves_the_gate_undecided_unless_another_rule_fails() -> None:
    """Neither green nor red; but what is red without it is red."""
    rules = {"no_worse_than": "base.json", "min_pass_rate": 0.5}
    one = judge(found(BOTH, gate=rules), None, GateOptions()).outcome.gate
    assert (one.word, one.exit_code) == (GateWord.UNDECIDED, 3)
    assert [line.verdict for line in one.lines] == ["met", "undecided"]
    assert "baseline base.json is not at hand" in one.why[0]
    assert judge(found(BOTH, gate=rules | {"min_pass_rate": 0.6}), None, GateOptions()).outcome.gate.exit_code == 1


@pytest.mark.parametrize("status", [BatchStatus.OPEN, BatchStatus.INCONCLUSIVE])
def test_a_baseline_without_a_number_is_refused(status: BatchStatus) -> None:
    """What may still move is nothing to be compared with."""
    other = found(BOTH, name="base", status=status)
    with pytest.raises(InputError, match=r"baseline base is (open|inconclusive)"):
        judge(found(BOTH), other, GateOptions(rules={"no_worse_than": "base"}))


def test_a_baseline_of_other_cases_is_refused() -> None:
    """Two rates of two data sets are not a difference."""
    with pytest.raises(InputError, match="has none of the cases"):
        verdict({"x#1": "pass"}, {"y#1": "pass"})


def test_a_suites_own_baseline_that_lacks_the_cases_decides_nothing(tmp_path: Path) -> None:
    """A batch of some cases, those that are new: it has a number, which every command has to show."""
    found(BOTH, name="base").freeze(tmp_path / "base.json")
    one = found({"x#1": "pass"}, gate={"no_worse_than": "base.json"})
    here = str(tmp_path / "suite.toml")
    for gate in (
        with_own_baseline(replace(one.outcome, rules=GateRules.from_mapping(one.gate)), here).gate,
        judge(replace(one, suite_path=here), None, GateOptions()).outcome.gate,
    ):
        assert (gate.exit_code, gate.why) == (3, ("no case is scored here and in baseline base.json",))


def test_a_baseline_of_some_of_the_cases_says_so() -> None:
    """It may have been frozen from a few of them: that the others are no worse was not seen."""
    (line,) = verdict(BOTH, {"a#1": "pass", "z#1": "pass"}).lines
    assert (line.measured, line.verdict) == ("+0.0000 over 1 of 4 cases", "met")
    assert verdict(BOTH, BOTH | {"z#1": "pass"}).lines[0].measured == "+0.0000"


def test_where_no_case_is_scored_in_both_nothing_is_decided() -> None:
    """Exit 3, and no division by nought."""
    before = found({"b#1": "pass"}, holes={"a#1": "poison"}, name="base")
    one = judge(found({"a#1": "pass"}), before, GateOptions(rules={"no_worse_than": "base"})).outcome.gate
    assert (one.exit_code, one.why) == (3, ("no case is scored here and in baseline base",))


def test_a_suite_keeps_its_baseline_beside_its_cases(tmp_path: Path) -> None:
    """Whoever runs it later, `run`, `status` and `gate` alike, compares with the file in its directory."""
    file = tmp_path / "base.json"
    found(BOTH, name="base").freeze(file)
    one = found(WORSE, gate={"no_worse_than": "base.json"})
    judged = with_own_baseline(one.outcome, str(tmp_path / "suite.toml")).gate
    assert (judged.word, judged.why) == (GateWord.FAILED, ("difference to base.json is -0.2500, below 0",))
    elsewhere = with_own_baseline(one.outcome, str(tmp_path / "elsewhere" / "suite.toml")).gate
    assert elsewhere.word is GateWord.UNDECIDED


def test_a_server_that_names_a_baseline_outside_the_suite_gets_none_read(tmp_path: Path) -> None:
    """A suite's own check keeps the path inside; what a server says has not passed it."""
    found(BOTH, name="base").freeze(tmp_path / "base.json")
    (tmp_path / "suite").mkdir()
    one = found(WORSE, gate={"no_worse_than": "../base.json"})
    assert with_own_baseline(one.outcome, str(tmp_path / "suite" / "suite.toml")).compared is None


# --- the command line over the suite ----------------------------------------------------------------------


def test_the_command_line_replaces_a_rule_and_adds_to_the_floor() -> None:
    """The suite asks for 0.9 and for a; the command line for 0.5 and for b."""
    one = found(BOTH, gate={"min_pass_rate": 0.9, "must_pass": ["a"]})
    assert judge(one, None, GateOptions()).outcome.gate.word is GateWord.FAILED
    judged = judge(one, None, GateOptions(rules={"min_pass_rate": 0.5, "must_pass": ["b"]})).outcome
    assert judged.gate.word is GateWord.PASSED
    assert judged.rules.must_pass == ("a", "b")


def test_an_open_batch_is_undecided_whatever_is_asked() -> None:
    """And no figure is made of what happens to be finished."""
    rules = {"min_pass_rate": 0.1, "must_pass": ["zzz"], "no_worse_than": "base"}
    one = judge(found(BOTH, status=BatchStatus.OPEN), found(BOTH, name="base"), GateOptions(rules=rules, by=["topic"]))
    assert (one.outcome.gate.exit_code, one.figures) == (3, None)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"min_pass_rate": 60.0}, "--min-pass-rate is 60.0 (a number from 0 to 1)"),
        ({"max_holes": -1}, "--max-holes is -1 (a whole number, 0 or more)"),
        ({"confidence": 0.3, "no_worse_than": "b"}, "--confidence is 0.3 (a number between 0.5 and 1, such as 0.95)"),
        ({"no_worse_than": ""}, "--no-worse-than is  (the name of a baseline)"),
        ({"price": float("inf")}, "--price is inf (a number, 0 or more)"),
        ({"must_pass": [""]}, "--must-pass is [''] (a list of case ids)"),
    ],
)
def test_a_wrong_option_is_named_as_it_was_written(rules: dict[str, Any], said: str) -> None:
    """Before anything is read."""
    with pytest.raises(InputError) as caught:
        check_options(GateOptions(rules=rules))
    assert str(caught.value) == " ".join(said.split())


def test_a_margin_may_go_with_the_suites_baseline_and_not_without_any() -> None:
    """It is checked when both are known."""
    options = GateOptions(rules={"margin": 0.1})
    check_options(options)
    with pytest.raises(InputError, match="--margin is about a baseline, and none is named"):
        judge(found(BOTH), None, options)
    assert GateRules.from_mapping({"no_worse_than": "b", "margin": 0.1}).least_difference == ">= -0.1"


# --- groups -----------------------------------------------------------------------------------------------

TOPICS = "".join(
    json.dumps({"id": name, "target": "", "metadata": {"topic": topic, "n": number}}) + "\n"
    for number, (name, topic) in enumerate([("a", "x"), ("b", "x"), ("c", "y"), ("d", None)])
)


def test_a_table_by_a_field_has_a_row_for_each_value_and_for_none(tmp_path: Path) -> None:
    """Its rows add up to the batch; holes are bounded in each."""
    suite = make_suite(tmp_path, MINIMAL, **{"cases.jsonl": TOPICS})
    bins = {"a#1": "pass", "b#1": "fail", "c#1": "pass"}
    one = judge(found(bins, holes={"d#1": "poison"}), None, GateOptions(suite=suite.root, by=["topic"]))
    assert one.figures is not None
    rows = {row.name: (row.cases, row.passed, row.scored, row.holes, row.rate) for row in one.figures.groups["topic"]}
    assert rows == {"(none)": (1, 0, 0, 1, None), "x": (2, 1, 2, 0, 0.5), "y": (1, 1, 1, 0, 1.0)}
    bounds = {row.name: (row.bounds.low, row.bounds.high) for row in one.figures.groups["topic"]}
    assert bounds == {"(none)": (0.0, 1.0), "x": (0.5, 0.5), "y": (1.0, 1.0)}


def test_a_field_that_no_case_has_is_named_with_those_that_they_have(tmp_path: Path) -> None:
    """A misspelt field would put every case into one group."""
    suite = make_suite(tmp_path, MINIMAL, **{"cases.jsonl": TOPICS})
    with pytest.raises(InputError, match=r"no case has the metadata field 'topik' \(there are n, topic\)"):
        judge(found(BOTH), None, GateOptions(suite=suite.root, cluster="topik"))


def test_a_suite_without_the_batchs_cases_is_refused(tmp_path: Path) -> None:
    """Groups of another data set say nothing of this one."""
    suite = make_suite(tmp_path, MINIMAL, **{"cases.jsonl": TOPICS})
    with pytest.raises(InputError, match="does not have 1 of the cases of nightly, 'z' for one"):
        judge(found(BOTH | {"z#1": "pass"}), None, GateOptions(suite=suite.root, by=["topic"]))


def test_a_suite_that_a_file_or_a_server_names_is_not_run(tmp_path: Path) -> None:
    """A file has no place of its suite; a suite in Python runs when it is read, so it has to be named by hand."""
    with pytest.raises(InputError, match=r"not at hand \(give a copy of it: --suite DIR\)"):
        fields_of(found(BOTH), None)
    (tmp_path / "suite.py").write_text("raise SystemExit('it was run')\n")
    named = replace(found(BOTH), suite_path=str(tmp_path / "suite.py"))
    with pytest.raises(InputError, match="not at hand"):
        fields_of(named, None)


def test_the_cluster_of_a_baseline_is_that_of_its_case(tmp_path: Path) -> None:
    """Cases of one topic change together: the lower bound gets lower, and with it what is proved."""
    lines = "".join(
        json.dumps({"id": f"c{n}", "target": "", "metadata": {"topic": str(n // 10)}}) + "\n" for n in range(100)
    )
    suite = make_suite(tmp_path, MINIMAL, **{"cases.jsonl": lines})
    before = {f"c{number}#1": "pass" for number in range(100)}
    now = before | {f"c{number}#1": "fail" for number in range(10)}
    rules = {"no_worse_than": "base", "margin": 0.2, "confidence": 0.95}
    apart = judge(found(now), found(before, name="base"), GateOptions(rules=rules))
    together = judge(
        found(now), found(before, name="base"), GateOptions(rules=rules, suite=suite.root, cluster="topic")
    )
    assert (apart.outcome.gate.word, together.outcome.gate.word) == (GateWord.PASSED, GateWord.FAILED)
