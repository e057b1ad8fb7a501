"""`evalbus run` to its closed snapshot, and what can be learnt of it afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bus.errors import InputError
from tests.fleet import Done, Stage, case, commits, eventually, read_export
from workers.processes.fleet import Fleet
from workers.processes.role_options import Role, RoleOptions

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
]

CASES = [case(f"c{number}", answer=str(number), target=str(number - number % 3 % 2)) for number in range(6)]
"""Of every three the second is wrong."""
RUNS = {f"c{number}#{trial}": "fail" if number % 3 == 1 else "pass" for number in range(6) for trial in (1, 2)}

KEYS = [
    "batch", "plane", "state", "snapshot_id", "intended", "quorum", "accepted", "bins", "pass_rate", "interval",
    "bounds", "holes", "rejects", "tokens", "runs", "gate",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """The batch `b` of `CASES`, twice each, run by one worker."""

    stage: Stage
    suite: Path
    done: Done
    result: dict[str, Any]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Undisturbed]:
    """One run for the whole module; nobody disturbs it, and nobody spends on it again."""
    with Stage.opened(tmp_path_factory.mktemp("undisturbed")) as stage:
        suite = stage.suite(CASES, name="tiny", trials=2, gate="min_pass_rate = 0.6")
        done = stage.run("run", suite, "--workers", 1, "--scorers", 1, "--batch", "b", "--json", "out.json")
        yield Undisturbed(stage, suite, done, _read(stage.root / "out.json"))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A place of the test's own; whatever it starts there must be gone at its end."""
    with Stage.opened(tmp_path) as one:
        yield one


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


# --- to the close -----------------------------------------------------------------------------------------


def test_a_run_ends_with_the_promised_json(undisturbed: Undisturbed) -> None:
    """Scripts read it: the keys are a promise, and every number follows from the suite."""
    result = undisturbed.result
    assert list(result) == KEYS
    assert result | {"snapshot_id": "", "interval": []} == {
        "batch": "b",
        "plane": "live",
        "state": "closed",
        "snapshot_id": "",
        "intended": 12,
        "quorum": 6,
        "accepted": 12,
        "bins": {"pass": 8, "fail": 4},
        "pass_rate": 8 / 12,
        "interval": [],
        "bounds": [8 / 12, 8 / 12],
        "holes": {},
        "rejects": {},
        "tokens": {"spent": 0, "durable": 0, "orphan": 0, "budget": None},
        "runs": RUNS,
        "gate": {"passed": True, "rule": "pass_rate >= 0.6"},
    }
    assert re.fullmatch("[0-9a-f]{64}", result["snapshot_id"])
    low, high = result["interval"]
    assert 0 < low < 8 / 12 < high < 1
    assert undisturbed.done.code == 0


def test_the_closing_screen_says_all_that_a_reader_needs_to_judge_the_number(undisturbed: Undisturbed) -> None:
    """A rate without its denominator, interval, holes and refusals is a rumour."""
    screen = dict(line.split(maxsplit=1) for line in undisturbed.done.out.splitlines() if line[:1] not in ("", " "))
    result = undisturbed.result
    assert screen["batch"] == "b (live)   closed, 12 runs"
    assert screen["pass"].startswith("rate  0.6667   8 of 12 scored runs passed")
    assert screen["interval"].startswith("{:.4f} to {:.4f}".format(*result["interval"]))
    assert screen["bounds"].startswith("0.6667 to 0.6667")
    assert (screen["bins"], screen["holes"], screen["refusals"]) == ("pass 8 · fail 4", "none", "none")
    assert screen["snapshot"] == result["snapshot_id"]
    assert screen["gate"].startswith("passed")


def test_without_a_terminal_progress_is_a_plain_line_now_and_then(undisturbed: Undisturbed) -> None:
    """On standard error, so that standard output is the result alone; the last line tells the end."""
    lines = undisturbed.done.err.splitlines()
    assert all(line.startswith("tiny · b: ") for line in lines), undisturbed.done.err
    assert re.match(r"tiny · b: closed 12/12 done · 0 running .* 0 holes · 0 refused · 0 tokens · 1 worker", lines[-1])
    assert "\x1b" not in undisturbed.done.err + undisturbed.done.out


async def test_four_workers_come_to_the_snapshot_of_one_also_where_names_have_blanks(
    undisturbed: Undisturbed, tmp_path: Path
) -> None:
    """Who did what, in which order and where is not part of the accepted set, so it is not part of its name."""
    with Stage.opened(tmp_path / "a place") as stage:
        suite = stage.suite(CASES, directory="a suite", name="tiny", trials=2, gate="min_pass_rate = 0.6")
        done = await stage.call("run", suite, "--workers", 4, "--scorers", 1, "--batch", "b", "--json", "my out.json")
        result = _read(stage.root / "my out.json")
    assert done.code == 0
    assert result == undisturbed.result


async def test_the_first_cases_alone_are_a_batch_that_goes_on_and_is_scored_anew(stage: Stage) -> None:
    """Its denominator is theirs, and said to be. A name goes on as it was made; another number is refused."""
    suite = stage.suite(CASES, trials=2, gate="min_pass_rate = 0.6")
    run = ("run", suite, "--workers", 1, "--scorers", 1, "--batch", "few", "--json", "few.json")
    for limit in (("--limit", 1), ()):
        done = await stage.call(*run, *limit)
        assert done.code == 0 and "closed, 2 runs, the first of the suite's 12\n" in done.out, done.out
        told = _read(stage.root / "few.json")
        assert (told["intended"], told["suite_runs"]) == (2, 12)
        assert told["runs"] == {run: RUNS[run] for run in ("c0#1", "c0#2")}
    assert (await stage.call(*run, "--limit", 2)).complaint.startswith(
        "batch 'few' has 2 runs, not 4 (leave --limit and --case out"
    )
    assert ["few", "closed", "2", "of", "12", "2"] in [
        line.split()[:6] for line in (await stage.call("status")).out.splitlines()
    ]
    await stage.call("export", "few", "few.jsonl")
    assert "closed, 2 runs, the first of the suite's 12\n" in (await stage.call("gate", "few.jsonl")).out
    await stage.call("report", "few.jsonl", "-o", "few.html")
    assert "plane, the first of the suite's 12</span>" in (stage.root / "few.html").read_text()
    anew = ("rescore", "few", "--judge", suite, "--scorers", 1)
    assert (await stage.call(*anew)).complaint.endswith("(some of them: --limit, --case))")
    assert "2 runs, the first of the suite's 12\n" in (await stage.call(*anew, "--limit", 1)).out


async def test_chosen_cases_are_a_batch_that_goes_on_with_them(stage: Stage) -> None:
    """Whoever wants to see one case fail again need not pay for the others."""
    suite = stage.suite(CASES, trials=2)
    run = ("run", suite, "--workers", 1, "--scorers", 1, "--batch", "some", "--json", "some.json")
    done = await stage.call(*run, "--case", "c4", "--case", "c1")
    assert "closed, 4 runs, chosen from the suite's 12\n" in done.out, done.out
    told = _read(stage.root / "some.json")
    assert told["runs"] == {run: RUNS[run] for run in ("c1#1", "c1#2", "c4#1", "c4#2")}
    assert (await stage.call(*run)).code == 0
    assert _read(stage.root / "some.json") == told
    refused = await stage.call(*run, "--case", "c4", "--case", "c2")
    assert refused.complaint.startswith("batch 'some' has 4 runs, other cases (leave")


async def test_what_goes_wrong_beside_the_answer_is_a_hole_by_its_name_and_below_the_quorum_exit_3(
    stage: Stage,
) -> None:
    """Neither a solver's crash nor a scorer's may count as a failure of the candidate, and none is tried again.

    With the quorum at 100 % four holes leave no number, and the gate has no word.
    """
    cases = [
        case("fine"),
        case("solver-raises", solver="raises"),
        case("scorer-raises", scorer="raises"),
        case("solver-interrupts", solver="interrupts"),
        case("scorer-interrupts", scorer="interrupts"),
    ]
    suite = stage.suite(cases, quorum="100%", concurrency=5)
    done = await stage.call("run", suite, "--workers", 1, "--scorers", 1, "--batch", "b", "--json", "out.json")
    result = _read(stage.root / "out.json")
    assert done.code == 3
    assert (result["state"], result["snapshot_id"], result["pass_rate"]) == ("inconclusive", None, None)
    assert result["holes"] == {"scorer_error": 2, "solver_error": 2}
    assert result["runs"] == {"fine#1": "pass"}
    assert result["gate"]["passed"] is not True
    said = r"ValueError: no such tool \(agent\.py:[0-9]+\)"
    assert re.search(rf"^ +solver-raises#1 +solver_error +{said}$", done.out, re.MULTILINE)
    assert f"  logs in {stage.home / 'logs' / 'b'}" in done.out
    logged = "".join(file.read_text() for file in (stage.home / "logs" / "b").iterdir())
    assert "Traceback (most recent call last)" in logged
    async with stage.watch("b") as batch:
        raised = await batch.row("solver-raises#1")
        assert raised is not None
        assert (raised.attempts, raised.detail.partition(" (")[0]) == (1, "ValueError: no such tool")


@pytest.mark.parametrize(
    ("role", "limits", "hole", "said"),
    [
        ("solver", {"timeout": "500ms"}, "solver_timeout", "no answer within 0.5 s"),
        ("scorer", {"scorer_timeout": "500ms"}, "scorer_error", "timed out after 0.5 s"),
    ],
    ids=["solver", "scorer"],
)
async def test_one_that_is_too_slow_is_cut_off_and_is_a_hole(
    stage: Stage, role: str, limits: dict[str, str], hole: str, said: str
) -> None:
    """Once. It is alone: on a busy machine others would not be done within half a second either."""
    suite = stage.suite([case("c", **{role: "sleeps"})], **limits)
    done = await stage.call("run", suite, "--workers", 1, "--scorers", 1, "--batch", "b")
    assert done.code == 3, done.err
    assert re.search(rf"^ +c#1 +{hole} +{said}$", done.out, re.MULTILINE), done.out
    async with stage.watch("b") as batch:
        row = await batch.row("c#1")
        assert row is not None
        assert (row.attempts, row.score_attempts, row.detail) == (1, int(role == "scorer"), said)


# --- after the close --------------------------------------------------------------------------------------


async def test_the_same_batch_name_again_tells_the_closed_result_and_spends_nothing(undisturbed: Undisturbed) -> None:
    """It starts no process and adds no line to the history: a closed batch is closed."""
    stage, logs = undisturbed.stage, undisturbed.stage.home / "logs" / "b"
    started = set(logs.iterdir())
    async with stage.watch("b") as batch:
        before = len(await batch.history())
        again = await stage.call("run", undisturbed.suite, "--batch", "b", "--json", "again.json")
        assert len(await batch.history()) == before
    assert set(logs.iterdir()) == started
    assert (again.code, again.out, again.err) == (undisturbed.done.code, undisturbed.done.out, "")
    assert _read(stage.root / "again.json") == undisturbed.result


async def test_gate_and_status_tell_the_same_of_it(undisturbed: Undisturbed) -> None:
    """Whoever asks later, without the suite, gets the same numbers."""
    stage = undisturbed.stage
    commands = [stage.start("gate", "b", "--json", "gate.json"), stage.start("status", "b"), stage.start("status")]
    gate, one, all_ = [await command.end() for command in commands]
    assert (gate.code, gate.out) == (undisturbed.done.code, undisturbed.done.out)
    assert _read(stage.root / "gate.json") == undisturbed.result
    assert (one.code, one.out) == (0, undisturbed.done.out)
    title, line = (text.split(maxsplit=9) for text in all_.out.splitlines())
    bins = Counter(undisturbed.result["runs"].values())
    assert dict(zip(title, line, strict=True)) == {
        "batch": "b", "state": "closed", "runs": "12", "admitted": "12", "running": "0", "sealed": "0",
        "scored": "12", "holes": "0", "refused": "0", "bins": f"pass {bins['pass']} · fail {bins['fail']}",
    }  # fmt: skip


async def test_the_gates_word_does_not_depend_on_who_reads_the_screen(undisturbed: Undisturbed) -> None:
    """`evalbus gate b | head -1`: the reader leaves, the pipe breaks, and exit 1 would say that the gate failed."""
    reader, writer = os.pipe()
    os.close(reader)
    command = undisturbed.stage.start("gate", "b", stdout=writer)
    os.close(writer)
    done = await command.end()
    assert (done.code, done.err) == (0, "")


async def test_a_screen_that_cannot_be_written_is_one_line(undisturbed: Undisturbed) -> None:
    """`evalbus gate b > /dev/full`: the disk is full, the verdict was not told, and no traceback explains it."""
    full = os.open("/dev/full", os.O_WRONLY)
    command = undisturbed.stage.start("gate", "b", stdout=full)
    os.close(full)
    done = await command.end()
    assert (done.code, done.complaint) == (2, "standard output cannot be written: No space left on device")


async def test_what_a_solver_leaves_running_does_not_outlive_the_run(stage: Stage) -> None:
    """A child in a session of its own, one whose parent has gone, and one of a worker that was killed.

    The stage finds whatever is left of them.
    """
    suite = stage.suite([case("a"), case("b", solver="dies")], max_deliveries=1)
    agent = (suite / "agent.py").read_text()
    spawning = (
        "async def solve(case, run):\n    import subprocess\n"
        '    subprocess.Popen(["sleep", "3600"], start_new_session=True)\n'
        '    subprocess.run("setsid sleep 3600 & echo started", shell=True)\n'
    )
    (suite / "agent.py").write_text(agent.replace("async def solve(case, run):\n", spawning))
    done = await stage.call("run", suite, "--workers", 1, "--scorers", 1, "--batch", "b", "--json", "out.json")
    assert done.code == 0, done.err
    assert _read(stage.root / "out.json")["holes"] == {"poison": 1}
    assert not [one for one in stage.processes() if one.arguments[:1] == ("sleep",)]


async def test_a_log_that_has_grown_large_starts_anew_with_its_processs_next_life(tmp_path: Path) -> None:
    """A solver that prints much, and is started again and again: the disk must not fill up by that."""
    fleet = Fleet(tmp_path)
    log = tmp_path / "w.log"
    log.touch()
    os.truncate(log, 10_000_001)
    fleet.start([RoleOptions(role=Role.WORKER, suite=str(tmp_path / "nothing"), name="w")])
    with pytest.raises(InputError, match="no such file or directory"):
        await fleet.failed()
    await fleet.stop()
    assert 0 < log.stat().st_size < 10_000


async def test_a_fleet_that_stops_leaves_it_to_asyncio_to_reap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Popen.send_signal` polls: it may take the exit code that another thread waits for, which then reports 255."""

    async def is_up() -> bool:
        return bool(fleet.pids)

    fleet = Fleet(tmp_path)
    fleet.start([RoleOptions(role=Role.WORKER, suite=str(tmp_path), name="w")])
    await eventually(is_up, "its process")
    polled: list[int] = []
    monkeypatch.setattr(subprocess.Popen, "poll", lambda process: polled.append(process.pid))
    await fleet.stop()
    assert polled == []
    assert fleet.alive(Role.WORKER) == 0


async def test_the_version_is_told(stage: Stage) -> None:
    """For whoever reports a problem."""
    done = await stage.call("--version")
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(r"evalbus \d+\.\d+\.\d+\n", done.out)


@pytest.fixture(scope="module")
def exported(undisturbed: Undisturbed) -> Path:
    """The batch's export, through a symbolic link: it is followed, not replaced."""
    link = undisturbed.stage.root / "b.jsonl"
    link.symlink_to("real.jsonl")
    done = undisturbed.stage.run("export", "b", link)
    assert (done.code, done.out) == (0, "")
    assert link.is_symlink()
    return link


def test_the_exports_chain_can_be_computed_by_anyone(exported: Path) -> None:
    """SHA-256 over the chain so far and the line without its own: no line can be changed, moved or dropped."""
    first, *lines, last = exported.read_text(encoding="utf-8").splitlines()
    head, ids = "0" * 64, []
    for line in lines:
        text, _, chain = line.removesuffix('"}').rpartition(',"chain":"')
        head = hashlib.sha256((head + text + "}").encode()).hexdigest()
        assert chain == head
        ids.append(json.loads(line)["id"])
    told = json.loads(last)
    assert (told["entries"], told["head"]) == (len(lines), head)
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"\d+-\d+/[1-9]\d*", one) for one in ids)
    parts = Counter(one.partition("/")[0] for one in ids)
    assert [int(one.partition("/")[2]) for one in ids] == [n for count in parts.values() for n in range(1, count + 1)]
    assert json.loads(first)["format"] == "evalbus-history"


def test_the_snapshots_name_follows_from_the_exported_decisions(exported: Path, undisturbed: Undisturbed) -> None:
    """From the history alone, without the server: every score that was accepted, once, in one canonical spelling."""
    head, *_, last = lines = read_export(exported)
    scores, abandoned = commits(lines, "histogram.score"), commits(lines, "histogram.abandon")
    bins = dict.fromkeys(head["policy"]["bins"], 0) | Counter(score["bin"] for score in scores)
    content = {
        "accepted": len(scores),
        "bins": bins,
        "holes": sorted([hole["run"], hole["why"]] for hole in abandoned),
        "intended": head["policy"]["intended"],
        "quorum": head["policy"]["quorum"],
        "rows": sorted([one["run"], one["digest"], one["epoch"], one["bin"], one["value"]] for one in scores),
    }
    canonical = json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    name = hashlib.sha256(canonical.encode()).hexdigest()
    assert name == undisturbed.result["snapshot_id"]
    assert last["snapshot"] == content | {"snapshot_id": name}
    assert {score["run"]: score["bin"] for score in scores} == RUNS
    assert [line["answer"]["snapshot_id"] for line in lines if line.get("op") == "close"] == [name]


async def test_the_server_is_gone_when_nobody_uses_it(undisturbed: Undisturbed) -> None:
    """A run that has ended leaves its data, and no process."""

    async def gone() -> bool:
        return not undisturbed.stage.processes()

    await eventually(gone, "the last process to end")
    assert (undisturbed.stage.home / "server" / "appendonlydir").is_dir()
