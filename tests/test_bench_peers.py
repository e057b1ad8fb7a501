"""Peers of the bench: their results are counted on the server, and one that does not run says why."""

from __future__ import annotations

import re
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bus.connection import Endpoint
from bus.target import Target
from bus.wire import Wire
from tests.waiting import PATIENCE
from workers.benching import peers
from workers.benching.driving import private_server
from workers.benching.peers import PEERS, JobRate, Peer, Unable, measure_peer

ROOT = Path(__file__).parent.parent
SIMPLE = Peer("simple", ("redis",), pattern="result:*", adapter="tests.bench_peer")


@pytest.fixture
async def empty(tmp_path: Path) -> AsyncIterator[Endpoint]:
    """A private server."""
    async with private_server(tmp_path / "home") as endpoint:
        yield endpoint


async def test_results_are_counted_once_however_many_steps_a_scan_takes(server: Target) -> None:
    """Keys of other names are none of them."""
    wire = await Wire.open(server.address())
    try:
        await wire.calls([("SET", f"result:{number}", 1) for number in range(2_500)])
        await wire.calls([("SET", f"job:{number}", 1) for number in range(50)])
        assert await SIMPLE.stored(wire) == 2_500
    finally:
        wire.close()


async def test_results_in_one_hash_are_its_fields(server: Target) -> None:
    """As huey keeps them."""
    wire = await Wire.open(server.address())
    try:
        assert await PEERS["huey"].stored(wire) == 0
        await wire.calls([("HSET", PEERS["huey"].table, number, 1) for number in range(7)])
        assert await PEERS["huey"].stored(wire) == 7
    finally:
        wire.close()


@pytest.mark.process
async def test_a_rate_is_of_all_jobs_by_all_workers(empty: Endpoint, tmp_path: Path) -> None:
    """Two workers, sixty jobs, sixty results: each job was pushed and taken by a command of its own at least."""
    rate = await measure_peer(SIMPLE, empty, 60, 2, tmp_path / "log")
    assert isinstance(rate, JobRate), rate
    assert rate.jobs == 60
    assert rate.jobs_per_s == pytest.approx(60 / rate.seconds)
    assert rate.server.commands >= 180


@pytest.mark.process
async def test_a_queue_that_loses_results_has_no_rate(
    empty: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mean over what came through would reward the loss."""
    monkeypatch.setattr(peers, "_SILENCE", PATIENCE)
    monkeypatch.setenv("EVALBUS_TEST_LOSES", "3")

    class Losing(Peer):
        async def stored(self, wire: Wire) -> int:
            if (found := await super().stored(wire)) == 17:  # no more will come, however long one waits
                monkeypatch.setattr(peers, "_SILENCE", 0.1)
            return found

    found = await measure_peer(
        Losing("losing", SIMPLE.packages, SIMPLE.pattern, adapter=SIMPLE.adapter), empty, 20, 1, tmp_path / "log"
    )
    assert isinstance(found, Unable)
    assert "only 17 of 20 results" in found.error


async def test_a_queue_that_is_not_installed_is_named_with_the_remedy(empty: Endpoint, tmp_path: Path) -> None:
    """It is in the result, and not left out."""
    absent = Peer("absent", ("no-such-queue",), pattern="*")
    found = await measure_peer(absent, empty, 10, 1, tmp_path / "log")
    assert isinstance(found, Unable)
    assert "no-such-queue is not installed" in found.error
    assert "not installed" in absent.version()


@pytest.mark.process
async def test_a_queue_that_does_not_come_up_is_named_with_its_last_words(empty: Endpoint, tmp_path: Path) -> None:
    """Its adapter ends at once, with an error that is told."""
    broken = Peer("broken", ("redis",), pattern="*", adapter="tests.no_such_adapter")
    found = await measure_peer(broken, empty, 10, 1, tmp_path / "log")
    assert isinstance(found, Unable)
    assert "no_such_adapter" in found.error


def test_every_peer_has_an_adapter_and_is_installed_by_the_group() -> None:
    """A name in the table without the file, or without the package, would be a queue that is never measured."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    installed = {re.split(r"[\[<>=;]", one)[0].strip() for one in groups["bench"]}
    for peer in PEERS.values():
        assert (ROOT / Path(*peer.module.split("."))).with_suffix(".py").is_file()
        assert set(peer.packages) <= installed


@pytest.mark.process
@pytest.mark.parametrize("name", list(PEERS))
async def test_each_queue_that_is_installed_stores_all_results(name: str, empty: Endpoint, tmp_path: Path) -> None:
    """With the group `bench` only."""
    if PEERS[name].missing:
        pytest.skip(f"{name} is not installed: pip install --group bench")
    found = await measure_peer(PEERS[name], empty, 100, 2, tmp_path / "log")
    assert isinstance(found, JobRate), found
    assert found.jobs == 100
