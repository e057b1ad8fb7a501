"""Scorers: right, wrong, or the judging itself failed; the three are never mistaken for each other."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from tests.suites import MINIMAL, make_suite
from tests.waiting import PATIENCE
from workers.cases import Case, Json
from workers.scoring import Score, ScorerError, Sealed, make_scorer
from workers.suite import Suite


def scored_by(root: Path, kind: str, more: str = "", /, **files: str) -> Suite:
    """A suite with that scorer."""
    return make_suite(root / "suite", f"{MINIMAL.replace('exact', kind)}{more}\n", **files)


async def verdict(suite: Suite, answer: str, target: Json, workspace: Path | None = None) -> Score:
    """The verdict on an answer."""
    return await make_scorer(suite).score(Case("a", "", target), Sealed(answer, workspace))


async def passes(suite: Suite, answer: str, target: Json) -> bool:
    """Whether it passes."""
    score = await verdict(suite, answer, target)
    assert (score.bin, score.value) in {("pass", "1"), ("fail", "0")}
    return score.bin == "pass"


async def failure(suite: Suite, answer: str = "", target: Json = "", workspace: Path | None = None) -> str:
    """The one line with which the judging fails."""
    with pytest.raises(ScorerError) as caught:
        await verdict(suite, answer, target, workspace)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- comparing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "more", "answer", "target", "expected"),
    [
        ("exact", "", "Paris", "Paris", True),
        ("exact", "", " Paris\n", "Paris", True),
        ("exact", "strip = false", " Paris\n", "Paris", False),
        ("exact", "", "paris", "Paris", False),
        ("exact", "ignore_case = true", "STRASSE", "straße", True),
        ("exact", "", "Paris!", "Paris", False),
        ("exact", "", "", "", True),
        ("exact", "", "42", 42, True),
        ("exact", "", "0.5", 0.5, True),
        ("exact", "", "b", ["a", "b"], True),
        ("exact", "", "c", ["a", "b"], False),
        ("includes", "", "It is Paris.", "Paris", True),
        ("includes", "", "It is PARIS.", "Paris", False),
        ("includes", "ignore_case = true", "It is PARIS.", "Paris", True),
        ("includes", "", "no", ["yes", "no"], True),
        ("includes", "", "perhaps", ["yes", "no"], False),
        ("includes", "", "x12", 12, True),
        ("regex", "", "in 1889", r"\b18\d\d\b", True),
        ("regex", "", "in 1789", r"\b18\d\d\b", False),
        ("regex", 'pattern = "^ok$"', "OK", None, False),
        ("regex", 'pattern = "^ok$"\nignore_case = true', "OK", None, True),
        ("regex", "", "é\n", "^é$", True),
        ("regex", "", "b", ["a", "b"], True),
    ],
)
async def test_text_is_compared(
    tmp_path: Path, kind: str, more: str, answer: str, target: Json, expected: bool
) -> None:
    """Blanks at the ends do not count unless asked; a list is any of its items; numbers are their JSON text."""
    assert await passes(scored_by(tmp_path, kind, more), answer, target) is expected


@pytest.mark.parametrize(
    ("kind", "target", "said"),
    [
        ("exact", None, "the case has no target, text or a number is needed"),
        ("exact", [], "the target is an empty list"),
        ("exact", True, "the target holds bool, text or a number is needed"),
        ("exact", {"a": 1}, "the target holds dict, text or a number is needed"),
        ("exact", ["a", None], "the case has no target, text or a number is needed"),
        ("includes", " ", "the target is empty, which every answer includes"),
        ("includes", ["a", ""], "the target is empty, which every answer includes"),
        ("regex", "(", "'(' is not a regular expression: missing ), unterminated subpattern at position 0"),
        ("regex", None, "the case has no target, text or a number is needed"),
        ("numeric", None, "the case has no target, a number is needed"),
        ("numeric", "many", "the target 'many' is not a number"),
        ("numeric", "3 or 4", "the target '3 or 4' is not a number"),
        ("numeric", True, "the target True is not a number"),
        ("numeric", [1], "the target [1] is not a number"),
        ("numeric", "1e9999999999999999999", "the target '1e9999999999999999999' is not a number"),
    ],
)
async def test_a_target_that_cannot_be_compared_is_the_suites_mistake(
    tmp_path: Path, kind: str, target: Json, said: str
) -> None:
    """Whatever the candidate answered: not its failure, and not its success."""
    suite = scored_by(tmp_path, kind)
    assert await failure(suite, "1", target) == said
    assert await failure(suite, "no number", target) == said


# --- numbers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "target", "expected", "value"),
    [
        ("42", 42, True, "42"),
        ("The answer is 42.", "42", True, "42"),
        ("6 * 7 = 42", 42, True, "42"),
        ("41 or 42", 41, False, "42"),
        ("1,234,567.50", 1234567.5, True, "1234567.50"),
        ("$1,234", "1,234", True, "1234"),
        ("4.2e1", 42, True, "42"),
        ("-3", -3, True, "-3"),
        ("\u22123", -3, True, "-3"),
        ("x = -.5", -0.5, True, "-0.5"),
        ("3-4", 4, True, "4"),
        ("42.0000001", 42, True, "42.0000001"),
        ("42.1", 42, False, "42.1"),
        ("答案42", 42, True, "42"),
        ("gpt4 says 5", 5, True, "5"),
        ("GPT4", 4, False, "nan"),
        ("none at all", 42, False, "nan"),
        ("", 42, False, "nan"),
        ("nan", 42, False, "nan"),
        ("inf", 42, False, "nan"),
        ("1e999999999999999999999", 42, False, "nan"),
        ("9007199254740993", 9007199254740993, True, "9007199254740993"),
        ("9007199254740992", 9007199254740993, False, "9007199254740992"),
    ],
)
async def test_the_last_number_counts(tmp_path: Path, answer: str, target: Json, expected: bool, value: str) -> None:
    """It is recorded as the value. An answer without one is wrong: the candidate was asked for a number."""
    score = await verdict(scored_by(tmp_path, "numeric"), answer, target)
    assert (score.bin == "pass", score.value.replace("4.2E+1", "42")) == (expected, value)


@pytest.mark.parametrize(
    ("more", "answer", "expected"),
    [
        ("tolerance = 0.1", "1.1", True),
        ("tolerance = 0.1", "1.1000000000000000001", False),
        ("tolerance = 0", "1", True),
        ("tolerance = 0\nrelative = 0.05", "0.95", True),
        ("tolerance = 0\nrelative = 0.05", "0.94", False),
        ("tolerance = 0.2\nrelative = 0.05", "0.8", True),
    ],
)
async def test_a_tolerance_is_kept_to_the_digit(tmp_path: Path, more: str, answer: str, expected: bool) -> None:
    """With floats, 1.1 is further from 1 than 0.1. The larger of the two tolerances counts."""
    score = await verdict(scored_by(tmp_path, "numeric", more), answer, 1)
    assert (score.bin == "pass") is expected


async def test_a_long_answer_of_digits_does_not_take_long(tmp_path: Path) -> None:
    """The candidate's text reaches a pattern and a number parser: both are linear."""
    suite = scored_by(tmp_path, "numeric")
    for answer in ("1" * 200_000, "1," * 100_000, "-" * 200_000, "1.1." * 50_000, "1e" * 100_000):
        async with asyncio.timeout(20):
            assert (await verdict(suite, answer, 42)).bin == "fail"


# --- searching --------------------------------------------------------------------------------------------


async def test_a_search_that_never_ends_is_stopped(tmp_path: Path) -> None:
    """Exponential time: in this process it would stop the heartbeats. It is an error, whatever the answer is."""
    suite = scored_by(tmp_path, "regex", 'pattern = "(a+)+$"\ntimeout = "300ms"')
    task = asyncio.ensure_future(failure(suite, "a" * 60 + "b"))
    beats = 0
    while beats <= 3:  # however long each takes: a search that held this process would let none of them be
        await asyncio.sleep(0.01)
        beats += 1
    assert (await task).startswith("searching '(a+)+$': timed out after ")


# --- programs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "more", "expected"),
    [
        ("exit 0", "", "pass"),
        ("exit 1", "", "fail"),
        ("exit 3", "pass_on = [3]\nfail_on = [0]", "pass"),
        ("exit 0", "pass_on = [3]\nfail_on = [0]", "fail"),
        ("sleep 60", 'timeout = "100ms"\nfail_on = [1, "timeout"]', "fail"),
        ("kill -11 $$", 'fail_on = [1, "signal"]', "fail"),
    ],
)
async def test_an_exit_code_is_the_verdict(tmp_path: Path, script: str, more: str, expected: str) -> None:
    """0 passes, 1 fails; a suite may say otherwise, also of time and signals."""
    suite = scored_by(tmp_path, "command", f'command = ["sh", "-c", "{script}"]\n{more}')
    assert (await verdict(suite, "", None)).bin == expected


@pytest.mark.parametrize(
    ("command", "more", "said"),
    [
        ('["sh", "-c", "echo broken >&2; exit 2"]', "", "sh: exit code 2: broken"),
        ('["sh", "-c", "kill -11 $$"]', "", "sh: killed by SIGSEGV"),
        ('["sleep", "60"]', 'timeout = "100ms"', "sleep: timed out after # s"),
        ('["./no-such-program"]', "", "cannot run './no-such-program': No such file or directory"),
        ('["sh", "-c", "exit 0"]', "pass_on = [3]\nfail_on = [1]", "sh: exit code 0"),
        ('["yes"]', 'fail_on = [1, "signal", "timeout"]', "yes: killed: it wrote more than its limit of output"),
    ],
)
async def test_any_other_end_is_an_error(tmp_path: Path, command: str, more: str, said: str) -> None:
    """A scorer that was killed has said nothing about the candidate."""
    suite = scored_by(tmp_path, "command", f"command = {command}\n{more}\n[limits]\noutput = '10kB'")
    assert re.sub(r"\d+\.\d", "#", await failure(suite)) == said


async def test_hidden_tests_run_on_the_sealed_workspace(tmp_path: Path) -> None:
    """They are copied over it: what the candidate put in their place does not count, what it wrote does."""
    test = (
        "import unittest, main\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(main.x, 1)\n"
    )
    suite = scored_by(
        tmp_path,
        "command",
        'command = ["python3", "-m", "unittest", "-q", "checks.test_main"]\nfiles = "hidden/{id}"',
        hidden__a__checks__test_main_DOT_py=test,
        hidden__b__checks__test_main_DOT_py=test,
    )
    for x, expected in ((1, "pass"), (2, "fail")):
        workspace = tmp_path / f"sealed-{x}"
        (workspace / "checks").mkdir(parents=True)
        (workspace / "main.py").write_text(f"x = {x}\n")
        (workspace / "checks" / "test_main.py").write_text("# always fine\n")
        score = await verdict(suite, "", None, workspace)
        assert (score.bin, score.value) == (expected, "1" if x == 1 else "0")
        assert ("exit code 1" in score.note) is (expected == "fail")


async def test_a_program_finds_answer_and_case(tmp_path: Path) -> None:
    """For judges that compare; also when the suite seals no workspace."""
    script = (
        "import json, os, sys\n"
        "answer, case, workspace, id = sys.argv[1:]\n"
        "case = json.load(open(case))\n"
        "assert (case['id'], id, os.environ['KEY']) == ('a', 'a', 'k')\n"
        "assert os.path.samefile(workspace, '.') and os.listdir('.') == []\n"
        "sys.exit(0 if open(answer, newline='').read() == case['target'] else 1)\n"
    )
    arguments = ["{python}", "{suite}/judge.py", "{answer_file}", "{case_file}", "{workspace}", "{id}"]
    suite = scored_by(tmp_path, "command", f'command = {json.dumps(arguments)}\nenv = ["KEY"]', judge_DOT_py=script)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEY", "k")
        assert await passes(suite, "é\r\n", "é\r\n")
        assert not await passes(suite, "é", "é\r\n")


async def test_hidden_files_that_went_away_are_an_error(tmp_path: Path) -> None:
    """After the suite was checked: without its tests, a program might well pass."""
    suite = scored_by(tmp_path, "command", 'command = ["true"]\nfiles = "hidden"', hidden__x="")
    (tmp_path / "suite" / "hidden" / "x").unlink()
    (tmp_path / "suite" / "hidden").rmdir()
    assert "No such file or directory" in await failure(suite)


# --- functions --------------------------------------------------------------------------------------------


def judged_by(root: Path, code: str, more: str = "") -> Suite:
    """A suite whose scorer is that code's `score`."""
    head = "import asyncio, time\nfrom workers.scoring import Score\n"
    toml = f"python = 'judge.py:score'\n{more}"
    return scored_by(root, "python", toml, judge_DOT_py=head + code)


@pytest.mark.parametrize("kind", ["def", "async def"])
async def test_a_function_judges(tmp_path: Path, kind: str) -> None:
    """A bool is one of the first two bins; a Score may be in any that is declared."""
    suite = judged_by(tmp_path, f"{kind} score(case, sealed):\n    return sealed.answer == case.target\n")
    assert await passes(suite, "x", "x")
    assert not await passes(suite, "y", "x")
    code = f"{kind} score(case, sealed):\n    return Score('half', '0.5', 'so so')\n"
    toml = 'bins = ["full", "none", "half"]\n' + MINIMAL.replace('"exact"', "'python'\npython = 'judge.py:score'")
    three = make_suite(tmp_path / "three", toml, judge_DOT_py="from workers.scoring import Score\n" + code)
    assert await verdict(three, "x", None) == Score("half", "0.5", "so so")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise ValueError('no')", "ValueError: no (judge.py:4)"),
        ("import sys; sys.exit(0)", "SystemExit: 0 (judge.py:4)"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt (judge.py:4)"),
        ("return None", "the scorer returned NoneType, not a Score or a bool"),
        ("return 1", "the scorer returned int, not a Score or a bool"),
        ("return 'pass'", "the scorer returned str, not a Score or a bool"),
        ("return Score('passed', '1')", "the bin 'passed' is not declared (the bins are pass, fail)"),
        ("return Score('pass', 0.5)", "the score's value is float, it must be text"),
        ("return Score('pass', 'x' * 201)", "the score's value has 201 characters, the most is 200"),
        ("raise TimeoutError", "TimeoutError (judge.py:4)"),
        ("raise asyncio.CancelledError", "it was cancelled by its own code"),
        ("raise GeneratorExit", "GeneratorExit (judge.py:4)"),
    ],
)
@pytest.mark.parametrize("kind", ["def", "async def"])
async def test_a_function_that_gives_no_verdict_is_an_error(tmp_path: Path, kind: str, body: str, said: str) -> None:
    """A truthy string is not a pass, a typing error in a bin's name not a fail."""
    assert await failure(judged_by(tmp_path, f"{kind} score(case, sealed):\n    {body}\n")) == said


@pytest.mark.parametrize(
    "code",
    [
        "async def score(case, sealed):\n    await asyncio.sleep(600)\n    return True\n",
        "def score(case, sealed):\n    time.sleep(2)\n    return True\n",
    ],
    ids=["async", "plain"],
)
async def test_a_function_that_takes_too_long_is_an_error(tmp_path: Path, code: str) -> None:
    """Its verdict, should it come, is not waited for."""
    assert await failure(judged_by(tmp_path, code, 'timeout = "100ms"')) == "timed out after 0.1 s"


@pytest.mark.parametrize("then", ["await asyncio.sleep(600)", "return True"], ids=["waits", "returns"])
async def test_a_function_that_cancels_its_own_task_is_an_error(tmp_path: Path, then: str) -> None:
    """It was taken for the scorer's own stop: the run went back, again and again, and ended as judge_failed."""
    code = f"async def score(case, sealed):\n    asyncio.current_task().cancel()\n    {then}\n"
    assert await failure(judged_by(tmp_path, code)) == "it was cancelled by its own code"
    await asyncio.sleep(0)  # nothing of it is left in the task that asked


async def test_cancelling_a_scorer_is_not_an_error_of_its(tmp_path: Path) -> None:
    """The scorer process is told to stop: the run goes to another one, and is no hole."""
    code = "async def score(case, sealed):\n    (sealed.workspace / 'begun').touch()\n    await asyncio.sleep(600)\n"
    task = asyncio.ensure_future(verdict(judged_by(tmp_path, code), "", None, tmp_path))
    async with asyncio.timeout(PATIENCE):
        while not (tmp_path / "begun").exists():
            await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
