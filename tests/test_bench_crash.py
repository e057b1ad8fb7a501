"""The crash comparison: what evalbus does in it, and the table that it makes."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bus.errors import InputError
from tests.soak import soaked
from workers.benching.crash.comparing import CrashTable, Failed, Observation, Row, run_crash
from workers.benching.crash.observing import Killed, NoServer, Stopped, Twice

ROOT = Path(__file__).parents[1]


@soaked
@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="the embedded server's binary is there for Linux")
async def test_evalbus_runs_the_job_of_a_dead_worker_again_and_refuses_what_comes_late() -> None:
    """Two of what its row says, observed anew. Times are not held against anything here, only that they end.

    The late worker learns from its heartbeat that its lease is another's, or from its seal; either is recorded.
    """
    table = await run_crash(["evalbus"], only=["killed_short", "stopped"])
    found = table.rows[0].found
    killed, stopped = found["killed_short"], found["stopped"]
    assert isinstance(killed, Killed), killed
    assert killed.again_after is not None
    assert isinstance(stopped, Stopped), stopped
    assert stopped.outcome in ("kept", "never returned")
    assert "stale_lease" in stopped.recorded or "stale_gen" in stopped.recorded


def example() -> CrashTable:
    """One row of everything that can be seen."""
    found: dict[str, Observation] = {
        "killed_defaults": Killed(None),
        "killed_short": Killed(6.25),
        "stopped": Stopped("kept", "run.seal stale_gen (1)"),
        "twice": Twice(1, 1, 2),
        "no_server": NoServer(40, 3, 8, 1, 31.0),
    }
    broken: dict[str, Observation] = dict.fromkeys(found, Failed("no answer | none within 20 s"))
    rows = [Row("celery", "5.7.0", found), Row("rq", "not installed", broken)]
    return CrashTable(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), rows)


def test_the_table_has_a_row_a_queue_and_says_what_was_not_seen() -> None:
    """A reader must not take a queue that did not run for one that does well. A bar in an error breaks no table."""
    head, rule, celery, rq = example().markdown().splitlines()
    assert celery == (
        "| celery, acks_late (5.7.0) | not in 60 s | 6.2 s "
        "| the first result is kept, recorded: run.seal stale_gen (1) | 1 / 1 / 2 "
        "| 3 of 40 undone, 8 extra, 1 of 2 workers exit |"
    )
    assert {line.count(" | ") for line in (head, rule, celery, rq)} == {5}
    assert rq.count("not observed: no answer / none within 20 s") == 5


def test_the_file_has_what_the_table_only_words() -> None:
    """Numbers stay numbers, so that two files can be compared."""
    told = json.loads(json.dumps(example().as_json()))
    assert told["at"] == "2026-01-02T03:04:05+00:00"
    assert told["queues"]["celery"]["no_server"]["extra"] == 8
    assert told["queues"]["celery"]["killed_defaults"] == {"again_after": None, "recorded": ""}
    assert told["queues"]["rq"]["twice"]["error"].startswith("no answer")


async def test_a_queue_without_an_adapter_is_refused_before_anything_starts() -> None:
    """With the names that there are."""
    with pytest.raises(InputError, match=r"no adapter for 'resque'.*evalbus, .*docket"):
        await run_crash(["evalbus", "resque"])
    with pytest.raises(InputError, match=r"nothing is observed under 'flood'.*killed_short"):
        await run_crash(["evalbus"], only=["flood"])


def test_the_program_says_it_in_one_line() -> None:
    """As every command does."""
    command = [sys.executable, "-m", "workers.benching.crash", "--queues", "resque"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("evalbus: there is no adapter for 'resque'")
    assert len(done.stderr.splitlines()) == 1
