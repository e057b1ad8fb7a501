"""How an Inspect task is named, and what is said of one that cannot be run; for most of it Inspect is not needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bus.errors import InputError
from tests.suites import write_suite
from workers.inspecting.target import file_of, is_target, plain, target_of, with_options
from workers.suite import load_suite

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

TASK = """\
from inspect_ai import Task, task
from inspect_ai.dataset import Sample


@task
def t(n: int = 2, name="a"):
    return Task(dataset=[Sample(id=f"{name}:{i}", input="x", metadata={"n": i}) for i in range(n)], epochs=2)


@task
def empty():
    return Task(dataset=[])


@task
def twins():
    return Task(dataset=[Sample(id="a", input="x"), Sample(id="a", input="y")])


@task
def broken():
    raise ValueError("no data here")


@task
def moving():
    import random

    return Task(dataset=[Sample(input=str(random.random()))])
"""


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with tasks, and a model for them."""
    monkeypatch.setenv("INSPECT_EVAL_MODEL", "mockllm/model")
    return write_suite(tmp_path / "suite", None, **{"tasks.py": TASK}) / "tasks.py"


# --- names ------------------------------------------------------------------------------------------------


def test_a_task_is_named_by_a_path_that_survives_being_resolved_and_recorded() -> None:
    """Each role, on each machine, reads the same of it: the file, the task, and what the command line said."""
    path = with_options(Path("inspect:evals/a.py@t"), "openai/gpt-4o", ["n=3", "who=x,y", "half=0.5"], 2, 5)
    assert path.parent == Path("evals")
    found = target_of(Path(str(path.resolve())))
    assert (found.file, found.task) == (Path("evals/a.py").resolve(), "t")
    assert found.options == {
        "model": "openai/gpt-4o", "args": {"n": 3, "who": ["x", "y"], "half": 0.5}, "epochs": 2, "limit": 5,
    }  # fmt: skip
    assert plain("inspect:a.py") == Path("a.py@")
    assert plain("inspect:a.py@t?model=x/y&T.n=1") == Path("a.py@t?model=x%2Fy&T.n=1")
    assert file_of(path) == Path("evals/a.py")


@pytest.mark.parametrize("name", ["suite.toml", "a.py", "dir", "dir@2", "a.py@t/suite.toml"])
def test_other_paths_mean_what_they_did(name: str) -> None:
    """A suite is a directory or a file, also with an @ in its name."""
    assert not is_target(Path(name))
    assert plain(name) == file_of(Path(name)) == with_options(Path(name), None, (), None, None) == Path(name)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("inspect:a.txt@t", "names no Inspect task (write inspect:FILE.py@task)"),
        ("inspect:a.py@two words", "names no Inspect task"),
        ("inspect:nowhere.py@t", "nowhere.py: no such file"),
        ("inspect:{tasks}@u", "has no task 'u' (it has t, empty, twins, broken, moving)"),
        ("inspect:{tasks}", "name the task of tasks.py (it has t, "),
        ("inspect:{tasks}@t?colour=red", "colour=red: no such option of an Inspect task"),
        ("inspect:{tasks}@t?T.size=1", "the task tasks.py@t cannot be made: TypeError"),
        ("inspect:{tasks}@empty", "The specified dataset is empty"),
        ("inspect:{tasks}@twins", "two samples of tasks.py@twins have the id 'a'"),
        ("inspect:{tasks}@broken", "cannot be made: ValueError: no data here"),
    ],
)
def test_a_task_that_cannot_be_run_is_one_clear_line(tasks: Path, named: str, said: str) -> None:
    """Before anything starts."""
    with pytest.raises(InputError) as found:
        load_suite(named.format(tasks=tasks))
    assert said in str(found.value)
    assert "\n" not in str(found.value)


def test_options_of_a_task_are_refused_for_a_suite(tmp_path: Path) -> None:
    """It says such things in its file; ignoring them would run another model than was asked for."""
    with pytest.raises(InputError, match="are for Inspect tasks"):
        with_options(tmp_path, "openai/gpt-4o", (), None, None)
    with pytest.raises(InputError, match="is no NAME=VALUE"):
        with_options(Path("inspect:a.py@t"), None, ["n"], None, None)


# --- suites -----------------------------------------------------------------------------------------------


def test_a_tasks_samples_are_cases_and_its_epochs_are_trials(tasks: Path) -> None:
    """An id that no run can have is quoted; what a report groups by is there."""
    suite = load_suite(f"inspect:{tasks}@t?T.n=3")
    assert (suite.name, suite.trials, suite.concurrency) == ("t", 2, 8)
    assert [case.id for case in suite.cases] == ["a%3A0", "a%3A1", "a%3A2"]
    assert [case.metadata["n"] for case in suite.cases] == [0, 1, 2]
    assert suite.first_of is None
    first = load_suite(f"inspect:{tasks}@t?T.n=3&epochs=4&limit=1")
    assert (first.intended, first.first_of, first.chosen_cases) == (4, 12, None), "a number over some of them says so"


def test_the_digest_knows_what_the_task_is_and_whom_it_asks(tasks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes with the same are of one batch; another argument, sample or model is another batch."""

    def digest(options: str = "") -> str:
        return load_suite(f"inspect:{tasks}@t{options}").digest

    first = digest()
    assert digest() == first
    assert len({first, digest("?T.n=1"), digest("?T.name=b"), digest("?model=other%2Fmodel")}) == 4
    monkeypatch.setenv("INSPECT_EVAL_MODEL", "mockllm/other")
    assert digest() != first
    assert load_suite(f"inspect:{tasks}@moving").digest != load_suite(f"inspect:{tasks}@moving").digest
    monkeypatch.delenv("INSPECT_EVAL_MODEL")
    with pytest.raises(InputError, match="the task t names no model"):
        digest()


def test_a_suite_file_may_hold_a_task_with_limits_of_its_own(tasks: Path) -> None:
    """Quorum, lease, gate: all that a suite says beside its cases, its solver and its scorer."""
    toml = 'lease = "2s"\nconcurrency = 3\n[inspect]\ntask = "tasks.py@t"\nargs = { n = 1 }\n'
    toml += "[gate]\nmin_pass_rate = 0.5\n"
    (tasks.parent / "suite.toml").write_text(toml)
    suite = load_suite(tasks.parent)
    assert (suite.lease, suite.concurrency, suite.intended, suite.gate.min_pass_rate) == (2.0, 3, 2, 0.5)
    for line, said in {
        'solver = { command = ["cat"] }\n': "solver: is the task's own in a suite with [inspect]",
        "trials = 2\n": "trials: is the task's own",
    }.items():
        (tasks.parent / "suite.toml").write_text(line + toml)
        with pytest.raises(InputError) as found:
            load_suite(tasks.parent)
        assert said in str(found.value)


# --- the extra --------------------------------------------------------------------------------------------


def test_without_the_extra_the_remedy_is_named(tasks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, and no traceback of an import."""
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    with pytest.raises(InputError, match=r"needs inspect-ai: .* \(pip install 'evalbus\[inspect\]'\)"):
        load_suite(f"inspect:{tasks}@t")


def test_who_has_no_task_does_not_wait_for_inspect() -> None:
    """It takes seconds to import."""
    code = (
        "import sys, workers.cli, workers.role, workers.job\n"
        "assert not [name for name in sys.modules if name.startswith('inspect_ai')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
