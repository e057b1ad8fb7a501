"""What chaos has found, each as small as it can be shown."""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path

import pytest

from bus.errors import ServerUnreachable
from bus.link import Link
from bus.port import Chunk
from bus.target import Target
from bus.types import Durability
from tests.batches import FixedDoor, opened
from tests.model_calls import LIMITS, at, figures, opened_call, succeeded
from tests.peer import peer
from tests.suites import MINIMAL, make_suite
from workers import logs
from workers.run import Run
from workers.runtime import SystemRuntime
from workers.solving import SolverError, make_solver

_LOADING = b"role:master\r\nloading:1\r\naof_enabled:0\r\n"


async def test_a_server_that_is_loading_its_data_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed and started again, Valkey says until it has loaded that it keeps no append-only file.

    Whoever comes just then would find it unfit for its durability, which no retry mends, and end for good.
    """
    monkeypatch.setattr("bus.link.load_missing", lambda *_: None)
    async with peer(lambda _: b"$%d\r\n%s\r\n" % (len(_LOADING), _LOADING)) as one:
        link = Link(FixedDoor(one.address), SystemRuntime(), patience=0.01, durability=Durability.STANDARD)
        with pytest.raises(ServerUnreachable, match="loading"):
            await link.command("PING")
        link.close()


async def test_a_call_of_which_nobody_was_asked_yet_waits_for_the_next_sweep(server: Target) -> None:
    """The endpoint was asked; then the sweeper's connection went silent, and a call's time ran out meanwhile.

    Swept with figures from before, it would be charged with all that it was admitted for.
    """
    async with opened(server.address(), limits=LIMITS, reclaim_ms=1_000) as batch:
        await batch.admit()
        await at(batch, 5_000)
        held = await batch.claimed()
        call, _ = await opened_call(batch, held)
        await batch.bus.flush(held.ref, call, [Chunk(1, 10)])
        await succeeded(batch, held)
        await at(batch, 6_000)
        before = await figures(batch)
        assert (await batch.bus.sweep(batch.name, 50, "model", {}, asked=[])).answer == {"freed": 0}
        assert await figures(batch) == before
        swept = await batch.bus.sweep(batch.name, 50, "model", {call.desk_lease: 12}, asked=[call.desk_lease])
        assert swept.answer == {"freed": 1}
        assert await figures(batch) == {"spent": 12, "durable": 10}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
async def test_a_disk_that_takes_no_more_is_not_the_candidates_failure(tmp_path: Path, number: int) -> None:
    """Its run would be a hole, and the machine would go on to spoil the next one; on another one it may pass."""
    code = f"def solve(case, run):\n    raise OSError({number}, 'no')\n"
    suite = make_suite(tmp_path, MINIMAL.replace('command = ["cat"]', 'python = "agent.py:solve"'), agent_DOT_py=code)
    with pytest.raises(OSError, match="no") as caught:
        await make_solver(suite).solve(suite.cases[0], _nobody())
    assert caught.value.errno == number


async def test_a_file_that_is_not_there_is_the_candidates_failure(tmp_path: Path) -> None:
    """On every machine."""
    code = "def solve(case, run):\n    open('nowhere/at/all')\n"
    suite = make_suite(tmp_path, MINIMAL.replace('command = ["cat"]', 'python = "agent.py:solve"'), agent_DOT_py=code)
    with pytest.raises(SolverError, match="nowhere"):
        await make_solver(suite).solve(suite.cases[0], _nobody())


def test_a_log_that_cannot_be_written_costs_its_lines_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A beat that logs that a lease is gone must not end by it: its process would live on without a heartbeat."""

    class Full:
        def write(self, _: str) -> int:
            raise OSError(errno.ENOSPC, "no space left on device")

        flush = isatty = lambda _: False

    monkeypatch.setattr(sys, "stderr", Full())
    stream = logs._Lossy(sys.stderr)
    assert stream.write(json.dumps({"event": "lease.fenced"})) > 0
    stream.flush()


def _nobody() -> Run:
    """A solver that fails before it looks at its run needs none."""
    return None  # type: ignore[return-value]
