"""The JUnit file: valid by the rules that servers check, read by others' parsers, and unharmed by anybody's text."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import xmlschema
from hypothesis import given, settings
from hypothesis import strategies as st
from junitparser import Error, Failure, JUnitXml

from bus.port import BatchStatus
from bus.types import RunId
from tests.gated import HOSTILE, found
from workers.cases import Case
from workers.gating.command import GateOptions, judge
from workers.gating.junit import junit
from workers.gating.sources import Found
from workers.results.showing import Shown

NOW = datetime(2026, 1, 2, 3, 4, 5)  # the format has no place for a zone
SCHEMA = xmlschema.XMLSchema(Path(__file__).with_name("junit.xsd"))


def text(one: Found, **rules: Any) -> str:  # noqa: ANN401 - any rule's value
    """The file of a batch, judged by these rules; it must be valid."""
    made = junit(judge(one, None, GateOptions(rules=rules)).found, NOW)
    SCHEMA.validate(made)
    return made


def named(made: str, case: str) -> list[Any]:
    """What happened to a test case, as another reader of the format tells it."""
    (one,) = [each for suite in JUnitXml.fromstring(made.encode()) for each in suite if each.name == case]
    return list(one.result)


def test_wrong_is_a_failure_missing_is_an_error_and_right_is_neither() -> None:
    """A CI server that counts a crashed worker as a wrong answer reports a regression that is none."""
    one = found({"a#1": "pass", "b#1": "fail"}, holes={"c#1": "poison"}, details={"c#1": "its worker died"})
    made = text(one)
    assert named(made, "a#1") == []
    (wrong,) = named(made, "b#1")
    assert (type(wrong), wrong.type, wrong.message) == (Failure, "fail", "fail, scored 7")
    (missing,) = named(made, "c#1")
    assert (type(missing), missing.type, missing.message) == (Error, "poison", "its worker died")
    read = JUnitXml.fromstring(made.encode())
    counts = [(suite.name, suite.tests, suite.failures, suite.errors) for suite in read]
    assert counts == [("nightly", 3, 1, 1)]


@pytest.mark.parametrize("bad", ["4", *HOSTILE], ids=repr)
def test_a_failure_has_what_was_answered_and_what_was_wanted(bad: str) -> None:
    """Also what a judge said, whose grade stands in the message; a line each, whatever they are made of."""
    shown = Shown(RunId("b#1"), "fail", bad, "I", "", Case("b", "", 5), (), judgement="wrong. GRADE: I")
    made = text(replace(found({"b#1": "fail"}), wrong={RunId("b#1"): shown}))
    (wrong,) = named(made, "b#1")
    assert wrong.message == "fail, scored I"
    first, *rest = wrong.text.split("\n")
    assert first.startswith("answer: ")
    assert rest == ["target: 5", "judgement: wrong. GRADE: I"]


def test_each_rule_is_a_test_case_of_its_own() -> None:
    """The page of the build says which rule is missed, and by how much."""
    made = text(found({"a#1": "pass", "b#1": "fail"}), min_pass_rate=0.4, must_pass=["b"])
    assert named(made, "pass_rate >= 0.4") == []
    (missed,) = named(made, "must_pass all 1")
    assert (missed.message, missed.text) == ("must pass, and did not: b#1 fail", "measured 0 of 1, asked for all 1")
    gate, runs = JUnitXml.fromstring(made.encode())
    assert (gate.name, gate.failures, runs.name, runs.failures) == ("gate of nightly", 1, "nightly", 1)


def test_what_cannot_be_decided_is_an_error_and_an_open_batch_has_no_runs() -> None:
    """No run of an open batch is shown as passed: its end may be another."""
    made = text(found({"a#1": "pass"}, status=BatchStatus.OPEN), min_pass_rate=0.5)
    (suite,) = JUnitXml.fromstring(made.encode())
    assert [case.name for case in suite] == ["gate"]
    (why,) = named(made, "gate")
    assert (type(why), why.type, why.message) == (Error, "undecided", "the batch is open: 1 of 1 runs have ended")
    made = text(found({"a#1": "pass"}, gate={"no_worse_than": "base.json"}))
    assert [type(each) for each in named(made, "difference >= 0")] == [Error]


def test_a_batch_without_rules_has_its_runs_only() -> None:
    """An empty suite called gate would look like one that passed."""
    (suite,) = JUnitXml.fromstring(text(found({"a#1": "pass"})).encode())
    told = {each.name: each.value for each in suite.properties()}  # type: ignore[no-untyped-call]
    assert (told["state"], told["pass_rate"], told["gate"]) == ("closed", "1.0", "not set")
    assert len(told["snapshot_id"]) == 64


def test_trials_stand_in_the_order_of_their_numbers() -> None:
    """a#10 after a#9."""
    made = text(found({f"a#{trial}": "pass" for trial in range(1, 12)}))
    (suite,) = JUnitXml.fromstring(made.encode())
    assert [case.name for case in suite] == [f"a#{trial}" for trial in range(1, 12)]


@pytest.mark.parametrize("bad", HOSTILE)
def test_no_text_gets_out_of_its_place(bad: str) -> None:
    """In an id, a reason, a detail, a bin's score: three test cases stay three, and each character is shown."""
    one = found({f"{bad}#1": "fail", "b#1": "pass"}, holes={f"{bad} too#1": bad}, details={f"{bad} too#1": bad})
    made = text(one, must_pass=["b"])
    gate, runs = JUnitXml.fromstring(made.encode())
    assert (gate.tests, runs.tests, runs.failures, runs.errors) == (1, 3, 1, 1)
    assert len(list(runs)) == 3
    assert all(each.isprintable() or each == "\n" for each in made)


def test_two_ids_that_differ_in_what_cannot_be_seen_are_two() -> None:
    """A case `a` and a case `a` with an escape character: one name for both would hide one of them."""
    (suite,) = JUnitXml.fromstring(text(found({"a#1": "pass", "a\x1b#1": "pass", "a\u200b#1": "pass"})).encode())
    assert {case.name for case in suite} == {"a#1", "a\\x1b#1", "a\\u200b#1"}


@settings(deadline=None, max_examples=60)
@given(st.text(min_size=1), st.text())
def test_any_text_gives_a_valid_file(name: str, said: str) -> None:
    """Whatever Python can hold, halves of surrogate pairs too."""
    one = found({f"{name}#1": "fail"}, holes={f"x{name}#1": said or "poison"}, details={f"x{name}#1": said})
    made = junit(one, NOW).encode()
    SCHEMA.validate(made.decode())
    assert len(JUnitXml.fromstring(made)) == 1
    assert [len(list(suite)) for suite in JUnitXml.fromstring(made)] == [2]
