"""`evalbus gate`, `plan`, `calibrate` as processes, on a real batch; and every command of their pages and workflow."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from junitparser import JUnitXml

from tests.fleet import Stage, case

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
]

ROOT = Path(__file__).parents[1]
WORKFLOW = ROOT / "examples" / "ci" / "evalbus.yml"

CASES = [
    case("sum", topic="easy"),
    case("product", topic="easy"),
    case("wrong", answer="2", topic="hard"),
    case("broken", solver="raises", topic="hard"),
]
GATE = 'min_pass_rate = 0.6\nmax_holes = 2\nmust_pass = ["sum"]'


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The batch `nightly`, twice four cases; its history and its frozen snapshot. Nobody changes them."""
    with Stage.opened(tmp_path_factory.mktemp("gate")) as one:
        suite = one.suite(CASES, trials=2, gate=GATE)
        assert one.run("server", "start").code == 0  # or each command would start its own
        done = one.run("run", suite, "--workers", 1, "--scorers", 1, "--batch", "nightly")
        assert done.code == 0, done.err
        assert one.run("export", "nightly", "nightly.jsonl.zst").code == 0
        assert one.run("gate", "nightly", "--freeze", "baseline.json").code == 0
        yield one
        one.run("server", "stop")


def read(file: Path) -> dict[str, Any]:
    """A JSON file."""
    said: dict[str, Any] = json.loads(file.read_text())
    return said


async def test_a_file_where_only_a_batch_can_be_is_told_with_who_reads_it(stage: Stage) -> None:
    """`no batch 'nightly.jsonl.zst'` sent people to look for a batch of that name."""
    (stage.root / "nightl").write_text("a note")
    for command, named, told in (
        ("status", "nightly.jsonl.zst", r"the history of batch 'nightly', .*evalbus show.* evalbus import"),
        ("review", "./baseline.json", r"a snapshot of batch 'nightly', .*\(evalbus gate reads the file\)"),
        ("status", "nightl", ""),
    ):
        done = await stage.call(command, named)
        wanted = rf"{re.escape(named)}: is {told}" if told else r"no batch 'nightl' .* did you mean nightly\?"
        assert (done.code, re.match(wanted, done.complaint) is not None) == (2, True), done


async def test_batch_history_and_snapshot_have_one_verdict(stage: Stage) -> None:
    """The same rules over the same set: word, number and figures, whichever it is read from."""
    sources = ("nightly", "nightly.jsonl.zst", "baseline.json")
    rules = ("--max-holes", 1, "--by", "topic", "--suite", "suite")
    commands = [
        stage.start("gate", source, *rules, "--json", f"{number}.json", "--figures", f"{number}.figures.json")
        for number, source in enumerate(sources)
    ]
    codes = [(await command.end()).code for command in commands]
    assert codes == [1, 1, 1]
    told = [read(stage.root / f"{number}.json") for number in range(3)]
    assert told[0] == told[1] == told[2] | {"rejects": told[0]["rejects"]}
    assert told[0]["gate"] == {"passed": False, "rule": "pass_rate >= 0.6 and holes <= 1 and must_pass 1 case"}
    figures = [read(stage.root / f"{number}.figures.json") for number in range(3)]
    assert figures[0] == figures[1] == figures[2]
    assert figures[0]["groups"]["topic"][0] | {"interval": 0, "error": 0} == {
        "name": "easy", "cases": 2, "passed": 4, "scored": 4, "holes": 0, "rate": 1.0, "interval": 0,
        "bounds": [1.0, 1.0], "error": 0,
    }  # fmt: skip


async def test_a_baseline_may_be_a_batch_a_history_or_a_snapshot(stage: Stage) -> None:
    """The same batch with itself: no case changed, and its holes stand in the bounds."""
    baselines = ("nightly", "nightly.jsonl.zst", "baseline.json")
    rule = ("--confidence", 0.9, "--margin", 0.5)
    for command in [stage.start("gate", "nightly", "--no-worse-than", one, *rule) for one in baselines]:
        done = await command.end()
        assert done.code == 0, done.err
        assert "0 better · 0 worse   sign test over cases, exact: p 1.0000" in done.out
        assert "difference +0.0000   no case changed: how far chance could move it is not known\n" in done.out
        assert "-0.2500 to +0.2500 had the holes of both failed and passed" in done.out


async def test_in_a_workflow_the_step_says_all_of_it(stage: Stage) -> None:
    """JUnit, annotations and summary of one call; the screen is the same, between two lines of the runner."""
    env = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(stage.root / "summary.md")}
    done = await stage.start("gate", "nightly", "--max-holes", "0", "--junit", "junit.xml", env=env).end()
    lines = done.out.splitlines()
    assert done.code == 1
    assert lines[0].startswith("::stop-commands::")
    assert lines[-2] == "::error title=evalbus gate failed::nightly: holes are 2, above 0"
    assert (stage.root / "summary.md").read_text().startswith("## evalbus gate: failed")
    gate, runs = JUnitXml.fromfile(str(stage.root / "junit.xml"))
    assert (gate.failures, runs.tests, runs.failures, runs.errors) == (1, 8, 2, 2)
    assert [each.result[0].text for each in runs if each.name == "wrong#1"] == ["answer: 2\ntarget: 1"]
    quiet = await stage.start("gate", "nightly", "--no-github", env=env).end()
    assert "::" not in quiet.out


async def test_what_the_number_would_be_worth_is_told_before_it_is_paid_for(stage: Stage) -> None:
    """`plan` starts nothing but the server that it asks for `--like`."""
    done = await stage.call("plan", "suite", "--like", "nightly.jsonl.zst", "--delta", 0.1, "--json", "plan.json")
    told = read(stage.root / "plan.json")
    assert (done.code, told["runs"], told["rate"], told["cases"]) == (0, 8, 4 / 6, 4)
    assert "assumed, as in nightly.jsonl.zst" in done.out


REFUSED = {
    ("gate", "no.jsonl"): "no.jsonl: cannot be read: No such file or directory",
    ("gate", "nightly", "--no-worse-than", "nigthly"): "no batch 'nigthly' on this server; did you mean nightly?",
    ("gate", "nightly", "--junit", "no/junit.xml"): "no/junit.xml: its directory does not exist",
    ("gate", "nightly", "--must-pass", "som"): "has no case 'som' (did you mean 'sum'?)",
    ("gate", "nightly", "--by", "topik"): "no case has the metadata field 'topik'",
    ("gate", "nightly", "--k", "0"): "--k is '0' (numbers of trials, such as \"1,3\")",
    ("gate", "nightly", "--k", "1,3"): "--k 3: no case of 'nightly' has more than 2 scored trials",
    ("gate", "suite/suite.toml"): "is no history of a batch",
    ("plan", "nowhere"): "nowhere: no such file or directory",
    ("calibrate", "suite"): "one batch differs from nothing",
}


async def test_bad_input_is_one_line_and_exit_2(stage: Stage) -> None:
    """No traceback, nothing on standard output."""
    commands = [stage.start(*arguments) for arguments in REFUSED]
    for command, said in zip(commands, REFUSED.values(), strict=True):
        done = await command.end()
        assert (done.code, done.out) == (2, "")
        assert said in done.complaint


# --- pages and workflow -----------------------------------------------------------------------------------


def shell(stage: Stage, script: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script as a step of a workflow is run, in a place where `evalbus` is this one."""
    binaries = stage.root / "bin"
    binaries.mkdir(exist_ok=True)
    program = binaries / "evalbus"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m workers.cli "$@"\n')
    program.chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("EVALBUS_", "GITHUB_"))}
    path = f"{binaries}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=stage.root, env=inherited | {"PATH": path, "EVALBUS_HOME": str(stage.home), "PYTHONPATH": str(ROOT)} | env,
        capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def commands(page: str) -> list[str]:
    """The blocks of shell on a page."""
    return re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)


@pytest.mark.parametrize("page", ["ci.md", "statistics.md"])
def test_every_command_of_the_page_does_what_it_says(page: str, stage: Stage) -> None:
    """In the order of the page, after one `nightly`; all of them pass."""
    blocks = commands(page)
    assert len(blocks) >= 2
    for block in blocks:
        done = shell(stage, block)
        assert done.returncode == 0, (block, done.stdout, done.stderr)


def test_the_page_has_the_workflow_as_it_is() -> None:
    """Copied from the page or from the file: the same."""
    assert f"```yaml\n{WORKFLOW.read_text()}```" in (ROOT / "docs" / "ci.md").read_text()


def test_the_workflow_fails_at_its_gate_and_nowhere_else(tmp_path: Path) -> None:
    """Its steps, one after the other, as a runner does: after a failure only those that always run."""
    workflow = yaml.safe_load(WORKFLOW.read_text())
    job = workflow["jobs"]["evaluate"]
    steps = [step for step in job["steps"] if "run" in step]
    assert [step["name"] for step in steps if step["run"].startswith("pip ")] == ["Install"]
    summary = tmp_path / "summary.md"
    with Stage.opened(tmp_path) as stage:
        assert stage.run("server", "start").code == 0
        stage.suite(CASES, gate="min_pass_rate = 0.9\nmax_holes = 1")
        env = {**job["env"], "GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
        codes: dict[str, int] = {}
        for step in steps[1:]:
            if any(codes.values()) and step.get("if") != "always()":
                continue
            done = shell(stage, step["run"], **env)
            codes[step["name"]] = done.returncode
        stage.run("server", "stop")
    assert {name: given for name, given in codes.items() if given} == {"Gate": 1}
    assert list(codes)[-1] == "Keep the evidence"
    assert summary.read_text().startswith("## evalbus gate: failed")
    kept = next(step["with"]["path"] for step in job["steps"] if step.get("uses", "").startswith("actions/upload"))
    assert all((tmp_path / name).stat().st_size for name in kept.split())
