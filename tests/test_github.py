"""The gate in a workflow: annotations and a summary that nobody else's text can speak in."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bus.errors import InputError
from bus.port import BatchStatus
from bus.types import RunId
from tests.gated import HOSTILE, found
from tests.suites import MINIMAL, make_suite
from workers.cases import Case
from workers.gating import github
from workers.gating.command import GateOptions, Verdict, judge, tell
from workers.gating.sources import Found
from workers.gating.visible import markdown, property_of, said, visible
from workers.results.showing import Shown

BINS = {"a#1": "pass", "b#1": "fail"}
INJECTED = "x\n::error title=you::were\r\n##[error]hacked %0A::set-output name=a::b"


def judged(one: Found, **rules: object) -> Verdict:
    """Judged by these rules."""
    return judge(one, None, GateOptions(rules=rules))


def test_each_rule_that_is_missed_is_an_error_beside_the_job() -> None:
    """Holes are a warning; what is met is not repeated."""
    one = judged(found(BINS, holes={"c#1": "poison"}), min_pass_rate=0.9, max_holes=0).outcome
    assert github.annotated(one) == [
        "::error title=evalbus gate failed::nightly: pass_rate is 0.5000, below 0.9",
        "::error title=evalbus gate failed::nightly: holes are 1, above 0",
        "::warning title=evalbus%3A runs without a score::nightly: poison 1",
    ]


def test_what_passed_is_a_notice_with_its_number_and_what_is_undecided_an_error() -> None:
    """The step ends with 3: a page without a word would leave its reader to the log."""
    assert github.annotated(judged(found(BINS), min_pass_rate=0.5).outcome) == [
        "::notice title=evalbus gate passed::nightly: 1 of 2 scored runs passed, 0.5000"
    ]
    (some,) = github.annotated(replace(judged(found(BINS)).outcome, first_of=46))
    assert some.endswith("1 of 2 scored runs passed, 0.5000 (2 runs, the first of the suite's 46)")
    assert github.annotated(judged(found(BINS, status=BatchStatus.OPEN)).outcome) == [
        "::error title=evalbus gate undecided::nightly: the batch is open: 2 of 2 runs have ended"
    ]


@pytest.mark.parametrize("bad", [*HOSTILE, INJECTED])
def test_no_case_can_speak_as_the_runner(bad: str) -> None:
    """One command a line, each one of ours, however the case is called that must pass."""
    one = judged(found({f"{bad}#1": "fail"}, holes={"h#1": bad}), must_pass=[bad]).outcome
    lines = github.annotated(one)
    assert len(lines) == 2
    for line in lines:
        assert re.fullmatch(r"::(error|warning) title=[^:,\n\r]*::[^\n\r\x1b]*", line), line
        assert line.isprintable()
        assert not re.search("%(?!25)", line.split("::", 2)[2])


@given(st.text())
def test_a_property_ends_nowhere_but_at_its_end(text: str) -> None:
    """`:` and `,` end a property, a line break ends the command, and `%` may not make one of them."""
    for made in (property_of(text), said(text)):
        assert made.isprintable()
        assert not re.search(r"%(?!25|3A|2C)", made)
    assert not set(property_of(text)) & {":", ","}


def screen_of(verdict: Verdict, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What a step prints."""
    out = io.StringIO()
    tell(verdict, GateOptions(on_github=True), Console(file=out, width=200))
    first, last, *rest = capsys.readouterr().out.splitlines()
    return [first, *out.getvalue().splitlines(), last, *rest]


def test_the_screen_is_printed_where_the_runner_obeys_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A case called `##[error]…` stands on the screen; between the two lines it is text. The word is new each time."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    verdict = judged(found({"a#1": "pass"}, holes={"##[error]hacked#1": "poison"}), max_holes=0)
    words = []
    for _ in range(2):
        lines = screen_of(verdict, capsys)
        stop = re.fullmatch("::stop-commands::([0-9a-f]{32})", lines[0])
        assert stop
        words.append(stop[1])
        end = lines.index(f"::{stop[1]}::")
        assert any("##[error]hacked" in line for line in lines[1:end])
        assert all(line.startswith(("::error ", "::warning ")) for line in lines[end + 1 :])
    assert words[0] != words[1]


# --- the summary ------------------------------------------------------------------------------------------


def cells(line: str) -> int:
    """Of a row of a table."""
    return len(re.findall(r"(?<!\\)\|", line)) - 1


def test_the_summary_has_the_rules_the_number_the_table_and_what_did_not_pass(tmp_path: Path) -> None:
    """All that one looks for before opening the log."""
    cases = ({"id": name, "target": "", "metadata": {"topic": topic}} for name, topic in ("ax", "bx", "cy"))
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    suite = make_suite(tmp_path, MINIMAL, **{"cases.jsonl": lines})
    one = found(BINS, holes={"c#1": "poison"}, details={"c#1": "it died"})
    verdict = judge(one, None, GateOptions(rules={"min_pass_rate": 0.9}, suite=suite.root, by=["topic"]))
    text = github.summary(verdict.found, verdict.figures).replace("&#46;", ".")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert text.startswith("## evalbus gate: failed\n")
    assert "| pass&#95;rate | 0.5000 | &#62;&#61; 0.9 | missed |" in rows
    assert "| c&#35;1 | no score&#58; poison | it died |  |" in rows
    assert "| x | 2 | 1 | 2 | 0.5000 |" in next(row for row in rows if row.startswith("| x"))
    assert "### 2 runs did not pass" in text
    assert "### 1 run did not pass" in github.summary(judge(found(BINS), None, GateOptions()).found, None)


def test_cases_that_changed_are_named_on_the_screen_in_the_figures_and_in_the_summary(tmp_path: Path) -> None:
    """How many got worse says whether to release; which ones, where to look. The worse ones are first."""
    before = found({"a#1": "pass", "b#1": "fail", "c#1": "pass", "d#1": "pass"}, name="base")
    now = found({"a#1": "pass", "b#1": "pass", "c#1": "fail", "d#1": "fail"})
    file = tmp_path / "figures.json"
    options = GateOptions(rules={"no_worse_than": "base"}, figures_file=file)
    verdict = judge(now, before, options)
    out = io.StringIO()
    tell(verdict, options, Console(file=out, width=200))
    assert [line.split() for line in out.getvalue().splitlines() if " there, " in line] == [
        ["worse", "c", "1.0000", "there,", "0.0000", "here"],
        ["worse", "d", "1.0000", "there,", "0.0000", "here"],
        ["better", "b", "0.0000", "there,", "1.0000", "here"],
    ]
    assert json.loads(file.read_text())["comparison"]["changed"] == [
        {"case": "c", "before": 1.0, "now": 0.0},
        {"case": "d", "before": 1.0, "now": 0.0},
        {"case": "b", "before": 0.0, "now": 1.0},
    ]
    text = github.summary(verdict.found, verdict.figures).replace("&#46;", ".")
    assert "### 3 cases changed" in text
    assert text.index("| c | 1.0000 | 0.0000 |") < text.index("| b | 0.0000 | 1.0000 |")


def test_many_changed_cases_are_counted_and_not_all_named_on_the_screen() -> None:
    """A screen is for reading; the file has them all."""
    before = found({f"c{number:02}#1": "pass" for number in range(20)}, name="base")
    now = found({f"c{number:02}#1": "fail" for number in range(20)})
    options = GateOptions(rules={"no_worse_than": "base"})
    out = io.StringIO()
    tell(judge(now, before, options), options, Console(file=out, width=200))
    lines = out.getvalue().splitlines()
    assert sum(" there, " in line for line in lines) == 12
    assert any(" ".join(line.split()) == "worse and 8 more all of them: --figures FILE" for line in lines)


@pytest.mark.parametrize(
    "bad", [*HOSTILE, INJECTED, "a|b||", "[x](javascript:1)", "<img src=x onerror=1>", "@everyone"]
)
def test_no_text_makes_markup_of_itself(bad: str) -> None:
    """Every row keeps its cells, and nothing is left that Markdown or HTML would take for its own."""
    verdict = judged(found({f"{bad}#1": "fail", "ok#1": "pass"}, holes={"h#1": bad}, details={"h#1": bad}), max_holes=0)
    text = github.summary(verdict.found, verdict.figures)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {cells(row) for row in rows} <= {2, 3, 4}
    for line in text.splitlines():
        if line.startswith(("|", "- ", "Batch ")):
            rest = re.sub(r"&#\d+;|^- |^Batch |\| ?|---", "", line)
            assert not re.search(r"[<>\[\]()`*_@!\\~:]", rest), line


@given(st.text())
def test_a_cell_is_one_line_of_letters_and_references(text: str) -> None:
    """Undone as Markdown undoes it, it is what `visible` shows."""
    made = markdown(text)
    assert re.sub(r"&#(\d+);", lambda found: chr(int(found[1])), made) == visible(text)
    assert not re.search(r"[!-%'-/:<-@\[-`{-~](?!\d*;)", made.replace("&#", ""))


@pytest.mark.parametrize("bad", HOSTILE, ids=repr)
def test_what_was_answered_and_what_was_wanted_stand_in_their_cells(bad: str) -> None:
    """Who looks at a red build wants to know that first. A long answer is cut, and none leaves its row."""
    shown = Shown(RunId("a#1"), "fail", bad + "x" * 1_000, "0", "", Case("a", "", "yes|no"), ())
    verdict = judged(replace(found({"a#1": "fail"}), wrong={RunId("a#1"): shown}), min_pass_rate=0.5)
    (row,) = [line for line in github.summary(verdict.found, None).splitlines() if line.startswith("| a&#35;1")]
    assert row.endswith("xxx… | yes&#124;no |")
    assert cells(row) == 4
    assert len(row) < 1_500


def test_a_large_batch_does_not_fill_the_summary() -> None:
    """A step may write one megabyte: the first fifty, and how many more."""
    verdict = judged(found({f"c{number:05}#1": "fail" for number in range(20_000)}), max_holes=0)
    text = github.summary(verdict.found, verdict.figures)
    assert len(text.encode()) < 20_000
    assert "And 19950 more." in text


def test_the_summary_is_added_to_what_other_steps_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its place is named by the runner; elsewhere there is none, and that is no error."""
    file = tmp_path / "summary.md"
    file.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
    github.write_summary("after\n")
    assert file.read_text() == "before\nafter\n"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "summary.md"))
    with pytest.raises(InputError, match="GITHUB_STEP_SUMMARY cannot be written: No such file or directory"):
        github.write_summary("after\n")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    github.write_summary("nowhere\n")


@pytest.mark.parametrize(("said_so", "is_it"), [("true", True), ("false", False), (None, False)])
def test_a_workflow_is_told_by_its_variable(said_so: str | None, is_it: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """GITHUB_ACTIONS, as GitHub sets it."""
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    if said_so is not None:
        monkeypatch.setenv("GITHUB_ACTIONS", said_so)
    assert github.is_on_github() is is_it
