"""Suites: what is read, what it is known by, and how everything that can be wrong with one is told."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from bus.errors import InputError
from bus.types import BatchId, Plane, RunId
from tests.suites import MINIMAL, make_suite, write_suite
from workers.batch_spec import specs_of
from workers.cases import Case
from workers.processes.commands import Limits
from workers.suite import ScorerTable, SolverTable, Suite, load_suite

FULL = """\
name = "repair"
cases = "cases.jsonl"
trials = 3
quorum = "60%"
bins = ["solved", "half", "unsolved"]
bound = 8
max_in_flight = 9
concurrency = 2
lease = "500ms"
max_deliveries = 4
timeout = "2m"
ignore = ["*.log"]
[solver]
python = "agent.py:solve"
env = ["API_KEY"]
[workspace]
template = "programs/{id}"
ignore = ["*.tmp"]
[scorer]
kind = "command"
command = ["python3", "-m", "unittest"]
files = "hidden/{id}"
timeout = "1h"
pass_on = [0, 3]
fail_on = [1, "timeout", "signal"]
[limits]
cpu = "5s"
memory = "512MB"
processes = 16
output = "1kB"
file = "1MiB"
[judge]
policy = "replay"
replay_budget = 2
[gate]
min_pass_rate = 0.6
max_holes = 0
"""

FILES = {
    "agent_DOT_py": "async def solve(case, run):\n    return ''\n",
    "programs__a__main_DOT_py": "",
    "programs__b__main_DOT_py": "",
    "hidden__a__test_DOT_py": "",
    "hidden__b__test_DOT_py": "",
}


def complaint(root: Path, *, check_code: bool = True, placed: bool = False) -> str:
    """The one line that loading ends with, the directory taken out; the line in `suite.toml` only if `placed`."""
    with pytest.raises(InputError) as caught:
        load_suite(root, check_code=check_code)
    line = str(caught.value)
    assert "\n" not in line
    assert caught.value.exit_code == 2
    line = line.replace(f"{root}/", "")
    return line if placed else re.sub(r"^(suite\.toml):\d+:", r"\1:", line)


# --- what is read -----------------------------------------------------------------------------------------


def test_every_field_is_read(tmp_path: Path) -> None:
    """Durations in seconds, sizes in bytes; a directory and the file in it name the same suite."""
    suite = make_suite(tmp_path, FULL, **FILES)
    assert (suite.name, suite.trials, suite.quorum, suite.bins) == ("repair", 3, "60%", ("solved", "half", "unsolved"))
    assert (suite.bound, suite.max_in_flight, suite.concurrency, suite.max_deliveries) == (8, 9, 2, 4)
    assert (suite.lease, suite.timeout, suite.ignore) == (0.5, 120.0, ("*.log",))
    assert (suite.solver.python, suite.solver.command, suite.solver.env) == ("agent.py:solve", None, ("API_KEY",))
    assert suite.workspace is not None
    assert (suite.workspace.template, suite.workspace.ignore) == ("programs/{id}", ("*.tmp",))
    scorer = suite.scorer
    assert (scorer.kind, scorer.command, scorer.files) == ("command", ("python3", "-m", "unittest"), "hidden/{id}")
    assert (scorer.timeout, scorer.pass_on, scorer.fail_on) == (3600.0, (0, 3), (1, "timeout", "signal"))
    assert suite.limits.of_commands == Limits(cpu=5, memory=512 * 10**6, processes=16, output=1000, file=2**20)
    assert (suite.judging.policy, suite.judging.replay_budget) == ("replay", 2)
    assert suite.gate.rules == {"min_pass_rate": 0.6, "max_holes": 0}
    assert (suite.root, suite.source) == (tmp_path.resolve(), tmp_path / "suite.toml")
    assert load_suite(str(tmp_path / "suite.toml")) == suite


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    """The documented ones; the name is made of the directory's, whatever characters that has."""
    suite = make_suite(tmp_path / "my suite (2)")
    assert suite.name == "my-suite-2"
    assert (suite.trials, suite.quorum, suite.bins, suite.bound) == (1, "50%", ("pass", "fail"), 64)
    assert (suite.lease, suite.timeout, suite.max_deliveries, suite.concurrency) == (10.0, 60.0, 5, 1)
    assert (suite.workspace, suite.solver.stdin, suite.scorer.strip) == (None, True, True)
    assert suite.limits.of_commands == Limits()
    assert (suite.judging.policy, suite.gate.rules) == ("reject", {})


def test_a_python_suite_has_the_same_fields(tmp_path: Path) -> None:
    """Tables as objects or as dictionaries, cases as a file or in place; helpers beside it can be imported."""
    write_suite(
        tmp_path,
        None,
        suite_DOT_py=(
            "from workers.suite import Case, ScorerTable, Suite\n"
            "from helper import LEASE\n"
            "suite = Suite(cases=[Case('x', 'q', 'a'), {'id': 'y', 'target': 'b'}], lease=LEASE,\n"
            "              solver={'command': ['cat']}, scorer=ScorerTable(kind='exact'))\n"
        ),
        helper_DOT_py="LEASE = '3s'\n",
    )
    suite = load_suite(tmp_path)
    assert suite.cases == (Case("x", "q", "a"), Case("y", "", "b"))
    assert (suite.lease, suite.source) == (3.0, tmp_path / "suite.py")


def test_cases_may_stand_in_the_suite_file(tmp_path: Path) -> None:
    """For a handful of them, in TOML as well."""
    toml = '[[cases]]\nid = "x"\ntarget = 3\n[[cases]]\nid = "y"\ntarget = "b"\n' + MINIMAL.partition("\n")[2]
    assert make_suite(tmp_path, toml).cases == (Case("x", "", 3), Case("y", "", "b"))


def test_runs_are_counted_case_by_case(tmp_path: Path) -> None:
    """The trials of the first case, then of the next; and from a run back to its case."""
    suite = make_suite(tmp_path, "trials = 2\n" + MINIMAL)
    assert suite.run_ids() == ["a#1", "a#2", "b#1", "b#2"]
    assert (suite.intended, suite.quorum_runs) == (4, 2)
    assert (suite.case_of(RunId("b#2")).id, suite.trial_of(RunId("b#2"))) == ("b", 2)


def test_the_first_cases_of_a_suite_are_under_the_same_digest(tmp_path: Path) -> None:
    """Who serves a batch of them has the whole suite. A quorum for all would never be met; the floor stays."""
    data = '{"id": "a", "target": ""}\n{"id": "b", "target": ""}\n{"id": "c", "target": "", "must_pass": true}\n'
    toml = 'trials = 2\nquorum = 3\ngate = {must_pass = ["b"]}\n' + MINIMAL
    suite = make_suite(tmp_path, toml, **{"cases.jsonl": data})
    first = suite.first(1)
    assert (first.run_ids(), first.intended, first.quorum_runs) == (["a#1", "a#2"], 2, 2)
    assert (first.digest, first.gate_rules) == (suite.digest, {"must_pass": ["b", "c"]})
    assert suite.first(9).run_ids() == suite.run_ids()
    dealt = make_suite(tmp_path / "dealt", "partitions = 8\n" + MINIMAL, **{"cases.jsonl": data})
    assert [len(specs_of(dealt.first(count), BatchId("b"), Plane.LIVE)) for count in (1, 2)] == [1, 2]
    assert (first.first_of, first.chosen_cases, suite.first_of) == (6, None, None)


def test_chosen_cases_of_a_suite_are_under_the_same_digest(tmp_path: Path) -> None:
    """In the suite's order, whatever the order in which they are named; those that are its first are just that."""
    suite = make_suite(tmp_path, "trials = 2\n" + MINIMAL)
    chosen = suite.chosen(["b"])
    assert (chosen.run_ids(), chosen.digest, chosen.first_of) == (["b#1", "b#2"], suite.digest, 4)
    assert [suite.chosen(ids).chosen_cases for ids in (["b"], ["a"], ["b", "a"])] == [("b",), None, None]
    with pytest.raises(InputError, match=r"there is no case 'b#1' \(did you mean 'b'\?\)"):
        suite.chosen(["b#1"])


@pytest.mark.parametrize("run", ["c#1", "a#3", "a#0", "a#01", "a", "a#", "#1", "a#1#1", "a#x", "a#²"])
def test_a_run_that_the_suite_does_not_have_is_a_key_error(tmp_path: Path, run: str) -> None:
    """A message may name anything."""
    suite = make_suite(tmp_path, "trials = 2\n" + MINIMAL)
    with pytest.raises(KeyError):
        suite.case_of(RunId(run))


def test_an_id_with_a_number_sign_keeps_its_runs_apart(tmp_path: Path) -> None:
    """The last `#` parts the trial: case `a` and case `a#1` share no run."""
    suite = make_suite(
        tmp_path, "trials = 2\n" + MINIMAL, cases_DOT_jsonl='{"id": "a", "target": 1}\n{"id": "a#1", "target": 1}\n'
    )
    assert suite.run_ids() == ["a#1", "a#2", "a#1#1", "a#1#2"]
    assert [suite.case_of(run).id for run in suite.run_ids()] == ["a", "a", "a#1", "a#1"]


@pytest.mark.parametrize(
    ("quorum", "runs"), [('"50%"', 2), ('"51%"', 3), ('"0%"', 1), ('"100%"', 4), ("4", 4), ("1", 1)]
)
def test_the_quorum_is_a_number_of_runs(tmp_path: Path, quorum: str, runs: int) -> None:
    """A share is rounded up, and is at least one run."""
    assert make_suite(tmp_path, f"trials = 2\nquorum = {quorum}\n" + MINIMAL).quorum_runs == runs


@pytest.mark.parametrize(
    ("declared", "at_once"),
    [
        ("concurrency = 1", 4),
        ("concurrency = 64\nmax_in_flight = 1024", 256),
        ("concurrency = 64\nmax_in_flight = 400", 100),
        ("concurrency = 64\nmax_in_flight = 1", 64),
    ],
)
def test_a_scorer_that_only_compares_takes_more_at_once(tmp_path: Path, declared: str, at_once: int) -> None:
    """But no more than a fourth of what may be scored at once, if that is more than a worker takes."""
    write_suite(tmp_path, f"{declared}\n{MINIMAL}")
    assert load_suite(tmp_path).judged_at_once == at_once


def test_any_other_scorer_takes_as_many_as_a_worker(tmp_path: Path) -> None:
    """A program, a search and a tree that is unpacked take this machine's time."""
    for number, other in enumerate(('kind = "command"\ncommand = ["true"]', 'kind = "regex"', 'kind = "exact"')):
        tree = "[workspace]\n" if "exact" in other else ""
        text = "concurrency = 3\n" + MINIMAL.replace('kind = "exact"', other + "\n" + tree)
        write_suite(tmp_path / str(number), text)
        assert load_suite(tmp_path / str(number)).judged_at_once == 3


def test_a_suite_that_was_not_loaded_says_so() -> None:
    """It has no directory yet, and so no cases and no digest."""
    declared = Suite(cases="c.jsonl", solver=SolverTable(command=("cat",)), scorer=ScorerTable(kind="exact"))
    with pytest.raises(RuntimeError, match="use load_suite"):
        _ = declared.digest
    with pytest.raises(ValidationError):
        setattr(declared, "trials", 2)  # noqa: B010 - the type checker knows better


# --- what it is known by ----------------------------------------------------------------------------------


def test_a_copy_elsewhere_has_the_same_digest(tmp_path: Path) -> None:
    """Another machine's copy joins the batch; what tools left in it does not count."""
    one = make_suite(tmp_path / "one", FULL, **FILES)
    shutil.copytree(tmp_path / "one", tmp_path / "two" / "one")
    for name in ("__pycache__/agent.pyc", ".git/HEAD", ".evalbus/log", "run.log", ".venv/pyvenv.cfg"):
        path = tmp_path / "two" / "one" / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (tmp_path / "two" / "one" / "empty").mkdir()
    two = load_suite(tmp_path / "two" / "one")
    assert (one.digest, one.candidate, one.judge) == (two.digest, two.candidate, two.judge)
    assert len(one.digest) == 64
    assert len(one.candidate) == len(one.judge) == 32
    assert one.candidate != one.judge


@pytest.mark.parametrize("change", ["content", "new file", "executable", "renamed", "field"])
def test_any_other_change_gives_another_digest(tmp_path: Path, change: str) -> None:
    """Code, cases, configuration: a process with other ones must not take part."""
    before = make_suite(tmp_path, FULL, **FILES)
    match change:
        case "content":
            (tmp_path / "hidden" / "a" / "test.py").write_text("# \n")
        case "new file":
            (tmp_path / "notes.txt").touch()
        case "executable":
            (tmp_path / "agent.py").chmod(0o755)
        case "renamed":
            (tmp_path / "hidden" / "a" / "test.py").rename(tmp_path / "hidden" / "a" / "test_a.py")
        case _:
            write_suite(tmp_path, FULL.replace("bound = 8", "bound = 7"), **FILES)
    after = load_suite(tmp_path)
    assert after.digest != before.digest
    assert after.candidate != before.candidate
    assert after.judge != before.judge


def test_two_suite_files_in_one_directory_are_two_suites(tmp_path: Path) -> None:
    """The files are the same; which of them counts is not."""
    write_suite(tmp_path, nightly_DOT_toml=MINIMAL)
    assert load_suite(tmp_path / "suite.toml").digest != load_suite(tmp_path / "nightly.toml").digest


def test_a_python_suite_that_reads_the_environment_is_known_by_what_it_declares(tmp_path: Path) -> None:
    """The same files on two machines may declare two suites: their digests must differ."""
    write_suite(
        tmp_path,
        None,
        suite_DOT_py=(
            "import os\nfrom workers.suite import Suite\n"
            "suite = Suite(cases='cases.jsonl', solver={'command': ['agent', os.environ['MODEL']]},\n"
            "              scorer={'kind': 'exact'})\n"
        ),
    )
    script = "import sys; from workers.suite import load_suite; print(load_suite(sys.argv[1]).digest)"

    def digest(model: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            env={**os.environ, "MODEL": model},
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    assert digest("a") == digest("a") != digest("b")


# --- what can be wrong ------------------------------------------------------------------------------------


def without(field: str) -> str:
    """The minimal suite without one of its lines."""
    return "".join(line for line in MINIMAL.splitlines(keepends=True) if not line.startswith(field))


def solver(line: str) -> str:
    """The minimal suite with another solver."""
    return MINIMAL.replace('command = ["cat"]', line)


def scorer(kind: str, more: str = "") -> str:
    """The minimal suite with another scorer."""
    return f"{MINIMAL.replace('exact', kind)}{more}\n"


KINDS = "one of exact, includes, regex, numeric, command, python, model"


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('name = "x"\ncases = \n', ":2: invalid TOML: Invalid value"),
        ('cases = "c\n', ":1: invalid TOML: Illegal character '\\n'"),
        ("[solver", ":1: invalid TOML: Expected ']' at the end of a table declaration"),
        ("trials = 1\ntrials = 2\n" + MINIMAL, ":2: invalid TOML: Cannot overwrite a value"),
        ("trails = 2\n" + MINIMAL, ": trails: unknown field (did you mean 'trials'?)"),
        ("zzz = 2\n" + MINIMAL, ": zzz: unknown field (known: name, cases, fields, trials, quorum, bins, "),
        (solver('comand = ["cat"]'), ": solver.comand: unknown field (did you mean 'command'?)"),
        (MINIMAL.replace("cases =", "case ="), ": case: unknown field (did you mean 'cases'?)"),
        (MINIMAL + "[gate]\nmin_rate = 1\n", ": gate.min_rate: unknown field (did you mean 'min_pass_rate'?)"),
        (without("cases"), ": cases: is missing"),
        ('cases = "cases.jsonl"\n[scorer]\nkind = "exact"\n', ": solver: is missing"),
        ('cases = "cases.jsonl"\nsolver = 3\n[scorer]\nkind="exact"\n', ": solver: must be a table, it is 3"),
        ("trials = true\n" + MINIMAL, ": trials: must be a whole number, it is True"),
        ("trials = 0\n" + MINIMAL, ": trials: must be at least 1, it is 0"),
        ("trials = 1000000000\n" + MINIMAL, ": trials: must be at most 1,000,000, it is 1000000000"),
        (
            "trials = 600_000\n" + MINIMAL,
            ": trials: 2 cases x 600,000 trials are 1,200,000 runs (a batch has at most 1",
        ),
        ('trials = "3"\n' + MINIMAL, ": trials: must be a whole number, it is '3'"),
        ('name = "a b"\n' + MINIMAL, ": name: 'a b' is not a name (letters, digits, "),
        ('bins = ["pass"]\n' + MINIMAL, ": bins: two or more different bins are needed"),
        ('bins = ["a", "a"]\n' + MINIMAL, ": bins: two or more different bins are needed"),
        ("timeout = 0\n" + MINIMAL, ': timeout: 0 is not a duration (write it as "500ms", "10s", '),
        ('lease = "1ms"\n' + MINIMAL, ": lease: 0.001 s is not a lease time (from 100ms to 1h)"),
        ("quorum = 3\n" + MINIMAL, ": quorum: 3 is more than the number of runs, 2 (cases 2 x trials 1)"),
        ('quorum = "x%"\n' + MINIMAL, ": quorum: 'x%' is not a share (write a number of runs, or \"50%\")"),
        ("quorum = 0\n" + MINIMAL, ": quorum: 0 is not a quorum (write a number of runs, at least 1, "),
        ("cases = 3\n" + without("cases"), ": cases: must name a file inside the suite directory, or be a list"),
        ("cases = []\n" + without("cases"), ": holds no case (a suite needs at least one)"),
        ("[[cases]]\nid = 1\n[[cases]]\nx = 1\n" + without("cases"), ": cases[1]: unknown field 'x' "),
        (MINIMAL.replace("cases.jsonl", "none.jsonl"), ": cases: no such file: none.jsonl"),
        (
            MINIMAL.replace("cases.jsonl", "../c.jsonl"),
            ": cases: '../c.jsonl' is outside the suite directory (copy it ",
        ),
        (MINIMAL.replace("cases.jsonl", "/etc/x"), ": cases: '/etc/x' is outside the suite directory (copy it in: "),
        ('ignore = ["*.jsonl"]\n' + MINIMAL, ": cases: 'cases.jsonl' is on the list of ignored files"),
        ('ignore = ["suite.*"]\n' + MINIMAL, ": this file: 'suite.toml' is on the list of ignored files"),
        (scorer("exat"), f": scorer.kind: unknown kind 'exat' (did you mean 'exact'? it is {KINDS})"),
        (MINIMAL.replace("kind", "timeout").replace("exact", "1s"), ": scorer.kind: is missing"),
        (scorer("llm"), f": scorer.kind: unknown kind 'llm' ({KINDS})"),
        (scorer("exact", 'pattern = "x"'), ": scorer: pattern is not used by the kind 'exact' (only by regex)"),
        (scorer("regex", 'pattern = "("'), ": scorer: pattern '(' is not a regular expression: missing ), "),
        (scorer("command"), ": scorer: the kind 'command' needs a command"),
        (scorer("command", 'command = ["x"]\nfail_on = [0]'), ": scorer: exit code 0 cannot both pass and fail"),
        (
            scorer("command", 'command = ["x"]\nfail_on = ["crash"]'),
            ': scorer.fail_on[0]: \'crash\' is neither an exit code nor "timeout" or "signal"',
        ),
        (scorer("command", 'command = ["{prompt_file}"]'), ": scorer: {prompt_file} has no meaning in this command"),
        (scorer("python"), ": scorer: the kind 'python' needs python, a function"),
        (scorer("numeric", "tolerance = -1"), ": scorer.tolerance: must be at least 0, it is -1"),
        (scorer("numeric", "tolerance = inf"), ": scorer.tolerance: must be a finite number, it is inf"),
        (solver('command = "cat"'), ": solver.command: must be a list, it is 'cat'"),
        (solver("command = []"), ": solver.command: must not be empty"),
        (solver('command = ["cat", 1]'), ": solver.command[1]: must be text, it is 1"),
        (solver("stdin = true"), ": solver: exactly one of python and command is needed"),
        (solver('command = ["cat"]\npython = "a.py:f"'), ": solver: exactly one of python and command is needed"),
        (solver('python = "agent.py"'), ": solver.python: 'agent.py' does not name a function (write \"file.py:"),
        (solver('command = ["cat"]\nenv = ["A=1"]'), ": solver.env[0]: 'A=1' is not the name of an environment "),
        (MINIMAL + '[limits]\nmemory = "1G"\n', ": limits.memory: '1G' is not a size (write it as "),
        (MINIMAL + "[gate]\nmin_pass_rate = 60\n", ": gate.min_pass_rate: must be at most 1, it is 60"),
        (MINIMAL + '[judge]\npolicy = "retry"\n', ": judge.policy: unknown policy 'retry' (one of reject, "),
        (MINIMAL + '[workspace]\ntemplate = "t/{id}"\n', ": workspace.template: no directory t/a for case 'a'"),
        (MINIMAL + '[workspace]\ntemplate = "t"\n', ": workspace.template: no directory t"),
        (MINIMAL + '[workspace]\ntemplate = "../x"\n', ": workspace.template: '../x' is not a path inside the "),
    ],
)
def test_bad_toml_is_told_with_file_and_field(tmp_path: Path, toml: str, said: str) -> None:
    """One line that names what to change, before anything has started."""
    assert complaint(write_suite(tmp_path, toml), placed="TOML" in said).startswith(f"suite.toml{said}")


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("# trails\n\ntrails = 2\n" + MINIMAL, ":3: trails: unknown field"),
        (MINIMAL + 'timeout = "1 x"\n', ":6: scorer.timeout: "),
        (MINIMAL + "[gate]\n\nmin_pass_rate = 60\n", ":8: gate.min_pass_rate: must be at most 1"),
        (MINIMAL.replace('["cat"]', '[\n  "cat",\n  1,\n]'), ":3: solver.command[1]: must be text"),
        (MINIMAL + 'pattern = """\ntolerance = 1\n"""\ntolerance = -1\n', ":9: scorer.tolerance: must be at least 0"),
        ("[[cases]]\nid = 1\n[[cases]]\nx = 1\n" + MINIMAL.partition("\n")[2], ":3: cases[1]: unknown field 'x'"),
        (MINIMAL.replace('kind = "exact"', 'timeout = "1s"'), ":4: scorer.kind: is missing"),
        (MINIMAL + '[tools."a.b"]\npython = "t.py:f"\n', ":6: tools.a.b"),
        (MINIMAL.replace("cases.jsonl", "none.jsonl"), ":1: cases: no such file"),
        (MINIMAL.partition("\n")[2], ": cases: is missing"),
    ],
    ids=[
        "misspelt", "in a table", "behind a blank line", "in a list of several lines", "below text that looks like it",
        "in a list of tables", "missing in its table", "a name with a dot", "found later", "missing in the file",
    ],
)  # fmt: skip
def test_a_wrong_field_is_told_with_the_line_that_it_is_written_in(tmp_path: Path, toml: str, said: str) -> None:
    """One that is missing, with that of its table; the parser itself does not say where a field stood."""
    assert complaint(write_suite(tmp_path, toml), placed=True).startswith(f"suite.toml{said}")


def test_a_file_that_is_not_utf8_is_told_with_its_line(tmp_path: Path) -> None:
    """TOML is UTF-8."""
    write_suite(tmp_path)
    (tmp_path / "suite.toml").write_bytes(b'trials = 1\nname = "caf\xe9"\n')
    assert complaint(tmp_path, placed=True) == "suite.toml:2: is not UTF-8 text (byte 0xe9) (save it as UTF-8)"


def test_what_is_wrong_with_the_cases_names_their_file(tmp_path: Path) -> None:
    """As the user would name it, with its line."""
    root = write_suite(tmp_path, cases_DOT_jsonl='{"id": "a"}\n{"id": "a"}\n')
    assert complaint(root).startswith("cases.jsonl:2: two cases have the id 'a', the first is line 1 ")
    write_suite(tmp_path, cases_DOT_jsonl="")
    assert complaint(root) == "cases.jsonl: holds no case (a suite needs at least one)"


NEEDED = '(give each case a target, or name a scorer that needs none: a command, "python" or "model")'


@pytest.mark.parametrize(
    ("kind", "rows", "said"),
    [
        ("exact", '{"id": "b"}\n', f"cases.jsonl:2: b: the case has no target, text or a number is needed {NEEDED}"),
        (
            "includes",
            '{"id": "b", "target": ""}\n',
            "cases.jsonl:2: b: the target is empty, which every answer includes",
        ),
        ("regex", '\n{"id": "b"}\n', f"cases.jsonl:3: b: the case has no target, text or a number is needed {NEEDED}"),
        ("numeric", '{"id": "b"}\n', f"cases.jsonl:2: b: the case has no target, a number is needed {NEEDED}"),
        ("numeric", '{"id": "b", "target": "x"}\n', "cases.jsonl:2: b: the target 'x' is not a number"),
        ("exact", '{"id": "b"}\n{"id": "a"}\n', "cases.jsonl:3: two cases have the id 'a', the first is line 1 "),
    ],
    ids=["none", "empty", "no pattern", "no number", "a word", "no case"],
)
def test_a_target_that_nothing_can_be_compared_with_is_told_before_it_is_paid_for(
    tmp_path: Path, kind: str, rows: str, said: str
) -> None:
    """Else each run is made, and then a hole. Who only reads the suite, such as a planner or `show`, may have it so."""
    toml = MINIMAL.replace("exact", kind)
    root = write_suite(tmp_path, toml, cases_DOT_jsonl='{"id": "a", "target": "1"}\n' + rows)
    assert complaint(root).startswith(said)
    if "two cases" not in said:
        assert load_suite(root, check_code=False).intended == 2
        with pytest.raises(InputError):  # `plan`, which calls no code, but should not plan what `run` refuses
            load_suite(root, check_code=False, check_targets=True)


def test_a_column_that_looks_like_the_target_is_named(tmp_path: Path) -> None:
    """In CSV a column of another name is metadata, and no error."""
    toml = MINIMAL.replace("jsonl", "csv")
    root = write_suite(tmp_path, toml, cases_DOT_csv="id,input,Expected\na,1,1\n")
    assert complaint(root) == (
        "cases.csv:2: a: the case has no target, text or a number is needed "
        '(in the suite: fields = { target = "Expected" })'
    )
    write_suite(tmp_path, 'fields = { target = "Expected" }\n' + toml)
    assert load_suite(root).cases == (Case("a", "1", "1"),)


@pytest.mark.parametrize(
    "table",
    [
        'kind = "regex"\npattern = "1"',
        'kind = "command"\ncommand = ["true"]',
        'kind = "python"\npython = "judge.py:score"',
        'kind = "model"\nprompt = "judge.txt"\ngrades = { C = "pass", I = "fail" }\nmodel = { name = "m" }',
    ],
    ids=["pattern", "command", "python", "model"],
)
def test_a_judge_that_compares_with_no_target_needs_none(tmp_path: Path, table: str) -> None:
    """A pattern of the suite's own, a program, a function, a model."""
    toml = MINIMAL.replace('kind = "exact"', table)
    files = {"judge_DOT_py": "def score(case, sealed):\n    return True\n", "judge_DOT_txt": "{answer}"}
    assert make_suite(tmp_path, toml, cases_DOT_jsonl='{"id": "a"}\n', **files).intended == 1


def test_a_path_that_is_no_suite_is_told(tmp_path: Path) -> None:
    """Missing, empty, ambiguous, or something else."""
    assert complaint(tmp_path / "none") == f"{tmp_path}/none: no such file or directory"
    (tmp_path / "empty").mkdir()
    assert complaint(tmp_path / "empty") == f"{tmp_path}/empty: holds no suite.toml and no suite.py"
    write_suite(tmp_path / "above" / "one")
    assert complaint(tmp_path / "above") == (
        f"{tmp_path}/above: holds no suite.toml and no suite.py (suites there: one)"
    )
    both = write_suite(tmp_path / "both", suite_DOT_py="")
    assert complaint(both) == f"{both}: holds both suite.toml and suite.py (name the one that counts)"
    assert complaint(both / "cases.jsonl") == (
        f"{both}/cases.jsonl: is not a suite (name a directory, a .toml or a .py file)"
    )


def test_a_link_out_of_the_directory_is_refused(tmp_path: Path) -> None:
    """What it names is not in the digest; put on the ignore list, it is not missed."""
    root = write_suite(tmp_path / "suite")
    (tmp_path / "secret.jsonl").write_text('{"id": "a"}')
    (root / "data").symlink_to("../secret.jsonl")
    assert complaint(root) == (
        "suite.toml: the link data leads out of the suite directory "
        "(replace it by what it names, or put it on the suite's ignore list)"
    )
    write_suite(root, 'ignore = ["data"]\n' + MINIMAL)
    assert load_suite(root).intended == 2
    write_suite(root, 'ignore = ["data"]\n' + MINIMAL.replace("cases.jsonl", "data"))
    assert complaint(root).startswith("suite.toml: cases: 'data' is outside the suite directory")


def test_a_link_to_something_ignored_is_refused(tmp_path: Path) -> None:
    """The link is in the digest, what it names is not."""
    root = write_suite(tmp_path, 'ignore = ["big"]\n' + MINIMAL, big__cases_DOT_jsonl='{"id": "a"}')
    (root / "cases.jsonl").unlink()
    (root / "cases.jsonl").symlink_to("big/cases.jsonl")
    assert complaint(root) == "suite.toml: cases: 'cases.jsonl' is on the list of ignored files"


def test_an_id_that_leads_out_of_a_template_is_refused(tmp_path: Path) -> None:
    """`programs/{id}` with the id `../x` is another directory than it looks."""
    toml = MINIMAL + '[workspace]\ntemplate = "programs/{id}"\n'
    root = write_suite(tmp_path, toml, cases_DOT_jsonl='{"id": "../a", "target": ""}\n', programs__x="", a__x="")
    assert complaint(root) == ("suite.toml: workspace.template: the id of case '../a' leads out of its directory")


# --- its code ---------------------------------------------------------------------------------------------

PYTHON = MINIMAL.replace('command = ["cat"]', 'python = "agent.py:solve"')


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import nosuch\n", "agent.py does not import: ModuleNotFoundError: No module named 'nosuch' (line 1)"),
        ("x = 1\ndef solve(:\n", "agent.py does not import: SyntaxError: invalid syntax (agent.py, line 2) (line 2)"),
        ("\n\nraise ValueError('a\\nb')\n", "agent.py does not import: ValueError: a b (line 3)"),
        ("import sys\nsys.exit(3)\n", "agent.py does not import: SystemExit: 3 (line 2)"),
        ("def sovle(case, run): ...\n", "agent.py has no function 'solve' (it has sovle)"),
        ("solve = 3\n", "'solve' in agent.py is not a function but of the type int"),
        ("def solve(case): ...\n", "agent.py:solve cannot be called with (case, run)"),
    ],
)
def test_code_that_cannot_be_used_is_told(tmp_path: Path, code: str, said: str) -> None:
    """Not after an hour, and without a traceback; a planner, which never calls it, may load the suite anyway."""
    root = write_suite(tmp_path, PYTHON, agent_DOT_py=code)
    assert complaint(root) == f"suite.toml: solver.python: {said}"
    assert load_suite(root, check_code=False).intended == 2


def test_a_missing_code_file_is_told_by_everyone(tmp_path: Path) -> None:
    """It is a file of the suite like its cases."""
    assert complaint(write_suite(tmp_path, PYTHON), check_code=False) == (
        "suite.toml: solver.python: no such file: agent.py"
    )
    scorer = MINIMAL.replace('"exact"', '"python"\npython = "../score.py:f"')
    assert complaint(write_suite(tmp_path, scorer), check_code=False) == (
        "suite.toml: scorer.python: '../score.py:f' is not a path inside the suite directory"
    )


def test_code_in_an_installed_module_can_be_named(tmp_path: Path) -> None:
    """`package.module:name`, also of the suite's own directory."""
    toml = MINIMAL.replace('command = ["cat"]', 'python = "pack.agent:Agent.solve"')
    code = "class Agent:\n    @staticmethod\n    def solve(case, run):\n        return ''\n"
    assert make_suite(tmp_path, toml, pack__agent_DOT_py=code).intended == 2
    root = write_suite(tmp_path, toml.replace("pack.", "no_such_pack."))
    assert complaint(root) == (
        "suite.toml: solver.python: module no_such_pack.agent does not import: "
        "ModuleNotFoundError: No module named 'no_such_pack'"
    )


def test_two_suites_with_helpers_of_one_name_do_not_share_them(tmp_path: Path) -> None:
    """Or the second would run the first one's code under its own digest."""
    agent = "import helper\ndef solve(case, run):\n    return helper.NAME\nassert helper.NAME == '{}', helper.NAME\n"
    for name in ("one", "two", "one"):
        make_suite(tmp_path / name, PYTHON, agent_DOT_py=agent.format(name), helper_DOT_py=f"NAME = '{name}'\n")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("workers.py", "import workers\n"),
        ("workers.py", "from workers import helper\n"),
        ("bus.py", "def solve(case, run):\n    import bus as own\n"),
        ("bus/routes.py", "from bus.routes import ROUTES\n"),
    ],
    ids=["import", "from", "late", "package"],
)
def test_a_module_that_evalbus_has_the_name_of_is_told_where_it_is_imported(
    tmp_path: Path, name: str, code: str
) -> None:
    """Not as an AttributeError in the middle of a run; also by who does not run the code, such as a planner."""
    root = write_suite(tmp_path, PYTHON, agent_DOT_py=code, **{name: "ROUTES = helper = 1\n"})
    line, own = code.count("\n"), "bus/" if "/" in name else name
    said = f"imports evalbus's own package {name[:-3].partition('/')[0]!r}, and not the suite's {own} (rename {own})"
    assert complaint(root, check_code=False) == f"agent.py:{line}: {said}"


def test_a_name_of_evalbus_that_nothing_imports_does_no_harm(tmp_path: Path) -> None:
    """A file that is read by its path, a directory of data; and what is imported of evalbus beside them."""
    code = "from workers.scoring import Score\nfrom workers import run\ndef solve(case, run): ...\n"
    toml = PYTHON.replace("agent.py", "workers.py")
    assert make_suite(tmp_path, toml, workers_DOT_py=code, bus__routes_DOT_txt="1").intended == 2


HOW = "(from workers.suite import Suite; suite = Suite(...))"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("x = 1\nraise RuntimeError('no')\n", ":2: suite.py does not import: RuntimeError: no"),
        ("def f():\n    return 1 / 0\n\nf()\n", ":2: suite.py does not import: ZeroDivisionError: division by zero"),
        ("suite =\n", ":1: suite.py does not import: SyntaxError: invalid syntax"),
        ("x = 1\n", f": defines no `suite` {HOW}"),
        ("suite = {}\n", f": `suite` is not a Suite but a dict {HOW}"),
        (
            "from workers.suite import Suite\nsuite = Suite(cases='c', trails=3)\n",
            ":2: trails: unknown field (did you mean 'trials'?)",
        ),
        (
            "from workers.suite import SolverTable\nSolverTable(comand=['x'])\n",
            ":2: solver.comand: unknown field (did you mean 'command'?)",
        ),
    ],
)
def test_a_bad_python_suite_is_told_with_its_line(tmp_path: Path, code: str, said: str) -> None:
    """The exception and where it was raised; a field as in TOML."""
    assert complaint(write_suite(tmp_path, None, suite_DOT_py=code)).startswith(f"suite.py{said}")


def test_loading_a_suite_does_not_load_what_it_does_not_need(tmp_path: Path) -> None:
    """Each role starts with it, and restarts with it when it was killed."""
    root = write_suite(tmp_path)
    script = (
        "import sys; from workers.suite import load_suite; load_suite(sys.argv[1]); "
        "print([name for name in ('pyarrow', 'numpy', 'scipy', 'redis', 'rich', 'typer') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(root)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
