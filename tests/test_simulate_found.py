"""Schedules that once broke something, as the simulation had shortened them."""

from __future__ import annotations

import pytest

from workers.simulating.faults import Fault
from workers.simulating.play import Crew
from workers.simulating.schedule import Schedule
from workers.simulating.setting import built_in

FOUND = {
    # A worker's only driven run waited for the place of a call that a lost server had forgotten to end; the entry whose
    # claim gives it back was its own, and it read none, because another run in its hands waited to be driven.
    "a place that a dead call has": Schedule(
        built_in("judged"), 1617, Crew(planners=1, workers=1, scorers=1),
        faults=(Fault("worker-1", "bind_call", 4, "server-lost", 0.139),),
    ),
    # Both planners had read that all runs had ended, and found one running when they read the rows: a lost server had
    # taken its end back in between. They ended by that.
    "an end that was taken back": Schedule(
        built_in("disks"), 2334, Crew(planners=2, workers=2, scorers=2),
        faults=(
            Fault("planner-2", "admit", 1, "overtaken", 0.329),
            Fault("worker-1", "claim", 1, "server-clock", 3.126),
            Fault("worker-1", "write", 3, "stop", 1.015),
            Fault("worker-2", "append", 5, "server-lost", 0.54),
        ),
    ),
    # The machine looked whether it could work again, and what it asked its disk for never came: it waited for that, and
    # took nothing any more.
    "a look that hangs": Schedule(
        built_in("plain"), 60, Crew(planners=1, workers=1, scorers=1),
        faults=(Fault("worker-1", "attempt", 2, "unfit-hung", 1.5),),
    ),
    # A late copy of what the desk had refused was granted its only place. Its sender waited for that very place, and
    # only looked whether it was free: it never asked again, and so never heard that it had it.
    "a place that one has and waits for": Schedule(
        built_in("model"), 2180, Crew(planners=1, workers=2, scorers=1),
        faults=(Fault("worker-1", "open_call", 1, "repeated", 0.548),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_does_not_come_back(name: str) -> None:
    """Every property holds, and the batch ends."""
    _, finding = FOUND[name].found()
    assert finding.violations == ()
