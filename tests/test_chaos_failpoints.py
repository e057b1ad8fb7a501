"""Orders to a process: met once, at their point, and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bus import failpoints
from bus.errors import ServerUnreachable
from bus.failpoints import Failpoints, Order
from tests.waiting import soon, until
from workers.runtime import SystemRuntime


async def _never() -> None:
    raise AssertionError("it was sent again")


@pytest.fixture
def armed(tmp_path: Path) -> Failpoints:
    """This process's own orders."""
    return Failpoints(tmp_path)


def place(order: Order, armed_in: Path) -> Path:
    """For this process."""
    return order.place(armed_in, os.getpid())


async def test_an_order_waits_for_its_point_and_is_met_once(armed: Failpoints, tmp_path: Path) -> None:
    """The file that goes away is how its sender learns of it."""
    file = place(Order("after", ("run.seal",), "lose"), tmp_path)
    await armed.before("run.seal")
    await armed.after("run.claim", _never)
    assert file.exists()
    with pytest.raises(ServerUnreachable):
        await armed.after("run.seal", _never)
    assert not file.exists()
    await armed.after("run.seal", _never)


async def test_a_repeated_request_comes_later_and_nobody_waits_for_it(armed: Failpoints, tmp_path: Path) -> None:
    """What a network does with a copy that took a longer way."""
    sent: list[str] = []

    async def again() -> None:
        sent.append("again")

    place(Order("after", (), "repeat", 0.01), tmp_path)
    await armed.after("run.seal", again)
    assert sent == []
    await until(lambda: sent == ["again"], "the copy")


async def test_a_clock_that_jumps_stays_where_it_is(
    armed: Failpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the runtime of the process shows it."""
    monkeypatch.setattr(failpoints, "ARMED", armed)
    before = SystemRuntime().now()
    place(Order("before", (), "clock", -3_600), tmp_path)
    await armed.before("run.seal")
    assert SystemRuntime().now() < before - 3_500


async def test_a_stall_holds_up_its_own_script_alone(armed: Failpoints, tmp_path: Path) -> None:
    """Beats of the same process go on: that is what makes it a late acknowledgement, and not a stopped process."""
    place(Order("before", ("run.seal",), "stall", 0.01), tmp_path)
    await soon(armed.before("run.heartbeat"))
    await soon(armed.before("run.seal"))


async def test_a_file_that_is_no_order_is_none(armed: Failpoints, tmp_path: Path) -> None:
    """Half of one is never there, but anybody can write into a directory."""
    (tmp_path / str(os.getpid())).write_text('{"when": "after"}')
    await armed.before("run.seal")
    await armed.after("run.seal", _never)


def test_without_the_variable_nobody_is_armed() -> None:
    """This very process was started without it."""
    assert failpoints.ARMED is None
    assert failpoints.jumped() == 0.0
