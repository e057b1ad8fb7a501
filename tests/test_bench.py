"""`evalbus bench` on real processes, with numbers that are too small to say anything but that it measures."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bus.errors import ViolationError
from bus.types import BatchId
from workers.benching.distance import measure_distance
from workers.benching.driving import staged
from workers.benching.flat import FlatOptions, measure_flat
from workers.benching.killing import measure_recovery
from workers.benching.kinds import Kind, SuiteOptions, make_suite
from workers.benching.latency import measure_latency

pytestmark = pytest.mark.process

_PATIENCE = 600.0  # seconds; a command that takes so long has failed


def bench(*words: object) -> subprocess.CompletedProcess[str]:
    """The command, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "workers.cli", "bench", *map(str, words)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE, check=False,
    )  # fmt: skip


def test_each_kind_is_measured_and_told(tmp_path: Path) -> None:
    """Exit 0 whatever the bars say: a bench is no gate. A run sends fewer commands than the server executes."""
    file = tmp_path / "bench.json"
    done = bench(
        "--kind", "noop,model,fanout,calls,startup", "--runs", 100, "--rounds", 1, "--workers", "1", "--json", file
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(file.read_text())
    assert {
        "runs", "workers", "runs_per_s", "bare_loop_per_s", "commands_per_run", "bytes_per_run", "kinds",
    } <= set(told)  # fmt: skip
    assert (told["runs"], told["workers"]) == (100, 1)
    assert told["runs_per_s"] > 0
    assert set(told["kinds"]) == {"noop", "model", "fanout", "calls", "startup"}
    for kind in ("noop", "model", "fanout"):
        one = told["kinds"][kind]["1"]
        assert one["runs"] == 100
        assert 0 < one["sent_per_run"] < one["commands_per_run"]["median"]
        assert one["physical_per_s"]["median"] > 0
        assert {"server", "worker", "scorer", "planner", "all"} <= set(one["cpu_ms_per_run"])
    assert "endpoint" in told["kinds"]["model"]["1"]["cpu_ms_per_run"]
    assert told["kinds"]["calls"]["share_of_bare"]["median"] > 0
    start = told["kinds"]["startup"]
    assert (start["cases"], start["processes"]) == (10, 6)
    assert start["interpreters_alone_s"]["median"] > 0
    assert start["seconds"]["median"] > 0
    assert {bar["figure"] for bar in told["bars"]} >= {
        "three-way fan-out", "script calls : bare hiredis", "evalbus run of ten cases, start to end",
    }  # fmt: skip
    assert "no-op runs : bare loop" in done.stdout


def test_a_wrong_kind_is_one_line_and_no_traceback() -> None:
    """Exit code 2, before anything is started."""
    done = bench("--kind", "noop,speed")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "speed" in done.stderr


async def test_a_history_that_lacks_a_run_is_no_measurement(tmp_path: Path) -> None:
    """One run more was to be done than the batch had: its figures would be those of another batch."""
    suite = make_suite(tmp_path / "suite", Kind.NOOP, SuiteOptions(20))
    larger = make_suite(tmp_path / "larger", Kind.NOOP, SuiteOptions(21))
    async with staged(tmp_path / "home", 1) as stage:
        cost = await stage.run(suite, Kind.NOOP, BatchId("b"))
        assert cost.runs == 20
        assert cost.seconds > 0
        with pytest.raises(ViolationError, match="not complete"):
            await stage.check(larger, Kind.NOOP, BatchId("b"))
        with pytest.raises(ViolationError, match=r"completion\.bind"):
            await stage.check(suite, Kind.MODEL, BatchId("b"))


async def test_latencies_are_those_of_the_runs_behind_the_first_wave(tmp_path: Path) -> None:
    """As many as were asked for, none negative; the load is told."""
    found = await measure_latency(tmp_path / "latency", 60, 1, depth=4)
    assert len(found.admission_to_lease) == len(found.seal_to_verdict) == 60
    assert min(found.admission_to_lease) >= 0
    assert min(found.seal_to_verdict) >= 0
    assert found.share > 0


async def test_a_killed_workers_run_is_leased_again_after_its_lease(tmp_path: Path) -> None:
    """Nobody starts it again under its name, so its silence is all that tells: a lease time from its last heartbeat."""
    found = await measure_recovery(tmp_path / "kills", 2, 3.0)  # a lease that no busy machine lets run out
    assert len(found.leases) == 2
    assert min(found.leases) > 0.1


async def test_curves_have_a_point_for_each_size_and_each_tenth_of_the_batches(tmp_path: Path) -> None:
    """A round each; the workers' memory is looked at on the way."""
    told: list[str] = []
    found = await measure_flat(tmp_path / "flat", FlatOptions(100, 3, 1, 1), told.append)
    assert [point.size for point in found.batches] == [10, 100]
    assert [point.size for point in found.many] == [1, 2, 3]
    assert len(told) == 5
    assert found.growth(lambda cost: cost.commands_per_run) > 0
    assert all(one.resident > 1_000_000 for one in found.memory)
    json.dumps(found.as_json())


@pytest.mark.process
def test_a_worker_far_away_is_measured_beside_one_that_is_near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its runs wait for their round trips, a claim and a seal at least, however slow the machine makes the rest."""
    monkeypatch.setattr("workers.benching.distance.DEPTHS", (8,))
    [one] = asyncio.run(measure_distance(tmp_path / "d", 100, 1, lambda _: None))
    assert one.near[0] > 0
    assert one.round_trips > 1
    assert one.as_json()["runs_in_hand"] == 8
