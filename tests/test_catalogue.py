"""Which batches a role serves, which it refuses, and when a refusal ends it."""

from __future__ import annotations

import asyncio
import gc
import shutil
from pathlib import Path

import pytest
import structlog

from bus.errors import InputError
from bus.memory.bus import MemoryBus, MemoryWorld
from bus.types import BatchId
from tests.suites import MINIMAL, make_suite, write_suite
from tests.waiting import soon, until
from workers.batch_spec import spec_of
from workers.catalogue import Catalogue, Served
from workers.runtime import SystemRuntime
from workers.suite import Suite, load_suite

OLD, NEW = BatchId("old"), BatchId("new")


@pytest.fixture
def bus() -> MemoryBus:
    """An empty bus."""
    runtime = SystemRuntime()
    return MemoryBus(MemoryWorld(runtime), runtime)


def altered(suite: Suite, place: Path) -> Suite:
    """A copy of a suite of the same name, one file more."""
    shutil.copytree(suite.root, place / suite.name)
    (place / suite.name / "more.txt").write_text("more")
    return load_suite(place / suite.name)


async def declare(bus: MemoryBus, suite: Suite, batch: BatchId) -> None:
    """Make a batch of it."""
    assert (await bus.create(spec_of(suite, batch))).applied


def remembered(batch: BatchId) -> bool:
    """Whether anything in this process still knows how it serves a batch."""
    gc.collect()
    return any(isinstance(one, Served) and one.batch == batch for one in gc.get_objects())


async def test_an_old_batch_of_another_state_of_the_suite_does_not_stand_in_the_way(
    bus: MemoryBus, tmp_path: Path
) -> None:
    """It stays open for ever, somebody's left-over; beside it there is the one that the role was started for."""
    suite = make_suite(tmp_path / "suite")
    await declare(bus, altered(suite, tmp_path / "then"), OLD)
    await declare(bus, suite, NEW)
    catalogue = Catalogue(bus, suite)
    with structlog.testing.capture_logs() as logged:
        for _ in range(3):
            assert [one.batch for one in await catalogue.open_batches()] == [NEW]
        bus._world.batches.pop(NEW)
        assert await catalogue.open_batches() == [], "the right one has ended: the role waits for the next"
    assert [(one["batch"], one["log_level"]) for one in logged if one["event"] == "batch.refused"] == [(OLD, "error")]


async def test_a_role_whose_suite_no_open_batch_is_of_ends_at_its_first_look_and_logs_nothing(
    bus: MemoryBus, tmp_path: Path
) -> None:
    """An altered copy: to wait would look like work. What is said is the command's own line."""
    suite = make_suite(tmp_path / "suite")
    await declare(bus, suite, OLD)
    with (
        structlog.testing.capture_logs() as logged,
        pytest.raises(InputError, match="batch 'old' was made from another state of suite 'suite'"),
    ):
        await Catalogue(bus, altered(suite, tmp_path / "now")).open_batches()
    assert logged == []


async def test_a_batch_of_another_state_that_comes_later_is_only_logged(bus: MemoryBus, tmp_path: Path) -> None:
    """The role waited with nothing to do; somebody's mistake elsewhere does not end it."""
    suite = make_suite(tmp_path / "suite")
    catalogue = Catalogue(bus, suite)
    assert await catalogue.open_batches() == []
    await declare(bus, altered(suite, tmp_path / "then"), OLD)
    assert await catalogue.open_batches() == []
    await declare(bus, suite, NEW)
    assert [one.batch for one in await catalogue.open_batches()] == [NEW]


async def test_a_role_that_was_started_for_one_batch_ends_when_that_is_refused_also_later(
    bus: MemoryBus, tmp_path: Path
) -> None:
    """There is nothing else that it could ever serve."""
    suite = make_suite(tmp_path / "suite")
    catalogue = Catalogue(bus, suite, only=OLD)
    assert await catalogue.open_batches() == []
    await declare(bus, altered(suite, tmp_path / "then"), OLD)
    with pytest.raises(InputError, match="give an unchanged copy"):
        await catalogue.open_batches()


async def test_a_role_that_is_stopped_does_not_wait_for_a_suite_that_loads_for_ever(
    bus: MemoryBus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suite is found at the batch's path, and its code is what hangs: SIGTERM must end the role all the same."""
    began = tmp_path / "began"
    wait = f"import pathlib, threading\npathlib.Path({str(began)!r}).touch()\nthreading.Event().wait()\n"
    suite = make_suite(tmp_path / "suite")
    await declare(bus, suite, NEW)
    write_suite(tmp_path / "suite", MINIMAL.replace('command = ["cat"]', 'python = "agent.py:solve"'))
    (tmp_path / "suite" / "agent.py").write_text(wait)
    catalogue = Catalogue(bus)
    look = asyncio.create_task(catalogue.open_batches())
    await until(began.exists, "the suite's code to begin")
    catalogue.stop()
    assert await soon(look) == []
    assert await soon(catalogue.open_batches()) == [], "nor is it begun anew"


async def test_a_batch_that_has_ended_is_forgotten_and_met_again_should_it_be_open_again(
    bus: MemoryBus, tmp_path: Path
) -> None:
    """A role on a shared server sees thousands. A server that lost its last moments has one of them open again."""
    suite, name = make_suite(tmp_path / "suite"), BatchId("soon-over")
    await declare(bus, suite, name)
    prepared: list[BatchId] = []
    catalogue = Catalogue(bus, suite, prepare=lambda _, spec: prepared.append(spec.batch))
    assert len(await catalogue.open_batches()) == 1
    lost = bus._world.batches.pop(name)
    assert await catalogue.open_batches() == []
    assert not remembered(name)
    bus._world.batches[name] = lost
    assert [one.batch for one in await catalogue.open_batches()] == [name]
    assert prepared == [name, name]


async def test_a_refusal_is_forgotten_with_its_batch(bus: MemoryBus, tmp_path: Path) -> None:
    """It stands as long as that is open, and is logged once; nothing is kept of it behind that."""
    suite = make_suite(tmp_path / "suite")
    catalogue = Catalogue(bus, suite)
    assert await catalogue.open_batches() == []
    await declare(bus, altered(suite, tmp_path / "then"), OLD)
    with structlog.testing.capture_logs() as logged:
        assert await catalogue.open_batches() == await catalogue.open_batches() == []
        lost = bus._world.batches.pop(OLD)
        assert await catalogue.open_batches() == []
        bus._world.batches[OLD] = lost
        assert await catalogue.open_batches() == []
    assert [one["batch"] for one in logged if one["event"] == "batch.refused"] == [OLD, OLD]
