"""The example suite: its programs are broken, its references are not, and its agent repeats itself exactly."""

from __future__ import annotations

import asyncio
import importlib
import sys
import types
import unittest
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from unittest import mock

import pytest

from bus.types import Gen, RunId
from workers.cases import Case
from workers.run import Run, seed_of
from workers.suite import Suite, function_of, load_suite
from workers.workspace import Workspace, prepare

EXAMPLE = Path(__file__).parent.parent / "examples" / "repair"
IDS = sorted(each.name for each in (EXAMPLE / "programs").iterdir())

Solve = Callable[[Case, Run], Coroutine[object, object, str]]


@dataclass(frozen=True)
class Result:
    """How many tests ran, and how many did not pass."""

    ran: int
    failed: int


def outcome(name: str, module: Path, tests: Path) -> Result:
    """Run a file of tests against a version of the module `name`, both fresh and forgotten afterwards."""
    modules = {each: types.ModuleType(each) for each in (name, tests.stem)}
    with mock.patch.dict(sys.modules, modules):
        for each, path in ((name, module), (tests.stem, tests)):
            exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), vars(modules[each]))  # noqa: S102
        result = unittest.TestResult()
        unittest.defaultTestLoader.loadTestsFromModule(modules[tests.stem]).run(result)
    return Result(result.testsRun, len(result.failures) + len(result.errors))


@pytest.fixture(scope="module")
def suite() -> Suite:
    """The suite as a worker loads it."""
    return load_suite(EXAMPLE)


def test_there_are_enough_programs_and_each_has_all_its_files(suite: Suite) -> None:
    """A case without a reference or hidden tests could not be checked; a directory without a case is dead."""
    assert len(suite.cases) >= 44
    assert [case.id for case in suite.cases] == IDS
    for case in suite.cases:
        assert case.metadata["file"] == f"{case.id}.py"
        for path in (f"programs/{case.id}/{case.id}.py", f"reference/{case.id}.py"):
            assert (EXAMPLE / path).is_file(), path


@pytest.mark.parametrize("name", IDS)
def test_the_reference_passes_where_the_program_fails(name: str) -> None:
    """Visible and hidden tests both see the bug, and neither asks for more than the reference does."""
    visible, hidden = EXAMPLE / "programs" / name / "test_visible.py", EXAMPLE / "hidden" / name / "test_hidden.py"
    program, reference = EXAMPLE / "programs" / name / f"{name}.py", EXAMPLE / "reference" / f"{name}.py"
    for tests in (visible, hidden):
        right, wrong = outcome(name, reference, tests), outcome(name, program, tests)
        assert right.ran > 0, tests
        assert right.failed == 0, tests
        assert wrong.failed > 0, tests


def run_in(workspace: Workspace, case: Case) -> Run:
    """A run of a case. What it notes is not looked at."""
    run_id = RunId(f"{case.id}#1")

    async def note(_text: str) -> None:
        pass

    return Run(run_id, case, 1, Gen(1), seed_of(run_id), workspace, note)


@pytest.mark.parametrize("name", ["glossary_lookup", "lap_average", "tide_warning"])
async def test_two_attempts_at_a_program_end_in_the_same_patch_which_is_right(
    suite: Suite, tmp_path: Path, name: str
) -> None:
    """A worker is killed and another one repeats the run: what is sealed must not tell who did it.

    The two attempts compete for the processor, so that a verdict that depended on time would differ.
    """
    solve = cast("Solve", function_of(suite, "solver"))
    case = suite.case_of(RunId(f"{name}#1"))
    runs = [run_in(prepare(suite, case, tmp_path / attempt), case) for attempt in ("first", "second")]
    first, second = await asyncio.gather(*(solve(case, run) for run in runs))
    assert first == second
    assert first.startswith(f"{name}.py:")
    patches = [run.workspace.read_text(f"{name}.py") for run in runs]
    assert patches[0] == patches[1]
    assert patches[0] != (EXAMPLE / "programs" / name / f"{name}.py").read_text(encoding="utf-8")
    hidden = EXAMPLE / "hidden" / name / "test_hidden.py"
    assert outcome(name, runs[0].workspace.locate(f"{name}.py"), hidden).failed == 0


async def test_a_program_that_no_edit_repairs_stays_as_it_was(suite: Suite, tmp_path: Path) -> None:
    """`answer()` would have to be a number that is nowhere near: every candidate fails."""
    (tmp_path / "odd.py").write_text("def answer():\n    return 5\n")
    (tmp_path / "test_visible.py").write_text(TESTS.replace("sevens", "odd").replace("7", "987654321"))
    case = Case("odd", metadata={"file": "odd.py"})
    solve = cast("Solve", function_of(suite, "solver"))
    run = run_in(Workspace(tmp_path), case)
    assert await solve(case, run) == "no repair found"
    assert run.workspace.read_text("odd.py") == "def answer():\n    return 5\n"


TESTS = """
import unittest
import sevens

class Tests(unittest.TestCase):
    def test_answer(self):
        self.assertEqual(sevens.answer(), 7)
"""

RIGHT = "def answer():\n    return 7\n"


@pytest.fixture
def sevens(tmp_path: Path) -> Run:
    """A run whose program has to answer 7."""
    (tmp_path / "test_visible.py").write_text(TESTS)
    return run_in(Workspace(tmp_path), Case("sevens"))


@pytest.mark.parametrize(
    "bad",
    [
        "def answer():\n    return 8\n",
        "def answer():\n    return (\n",
        "while True:\n    pass\n",
        "import itertools\nTIMES = [each for each in itertools.count() if each < 0]\n",
        "def answer():\n    return answer()\n",
        "def answer():\n    return sum([1] * 10**10)\n",
        "import os\nos._exit(0)\n",
        "raise SystemExit(0)\n",
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
        "import sys\nsys.stdout.write('{}' * 10**5)\ndef answer():\n    return 8\n",
    ],
)
async def test_a_candidate_that_misbehaves_fails_alone(suite: Suite, sevens: Run, bad: str) -> None:
    """It may loop, eat memory, print, or take its process with it: those tried before and after are judged as ever."""
    assert suite.solver.python == "agent.py:solve"
    function_of(suite, "solver")  # puts the suite's directory on the import path
    harness = importlib.import_module("agent").harness
    request = {"module": "sevens", "tests": "test_visible", "steps": 10_000, "first": [], "wanted": 9}
    judged = await harness(sevens, {**request, "candidates": [RIGHT, bad, bad, RIGHT]})
    assert judged["plausible"] == [0, 3]


def test_a_line_that_only_failing_tests_run_is_the_most_suspicious(suite: Suite) -> None:
    """Line 2 is run by all, 3 by the failing test, 4 by passing ones: which cannot hold the fault."""
    function_of(suite, "solver")
    ranking = importlib.import_module("mend.ranking")
    spectra = [
        ranking.Spectrum("a", False, frozenset({2, 3})),
        ranking.Spectrum("b", True, frozenset({2, 4})),
        ranking.Spectrum("c", True, frozenset({2, 4})),
    ]
    assert ranking.suspicion(spectra) == {2: pytest.approx(3**-0.5), 3: 1.0}
