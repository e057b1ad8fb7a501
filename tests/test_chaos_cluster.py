"""The cluster that chaos starts: what dies there is replaced, and comes back behind whoever replaced it."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from bus.keys import slot_of
from bus.types import Plane
from tests.editable import History
from tests.editable import true as true  # noqa: PLC0414 - the fixture
from tests.tampered import EDITS
from workers.chaos.cluster_set import ClusterSet
from workers.chaos.examining import restarted
from workers.chaos.several import free_ports, replication


async def test_a_killed_primary_is_replaced_and_follows_who_took_its_place(tmp_path: Path) -> None:
    """Twice: the second time the one that was killed first is the only one that can take over."""
    cluster = ClusterSet.of(tmp_path, slot_of(Plane.LIVE, 3))
    try:
        await cluster.start()
        first = cluster.primary
        await cluster.fail_over(0.0)
        second = cluster.primary
        assert second is not first
        assert (await replication(first))["master_port"] == str(second.target.port)
        await cluster.fail_over(0.0)
        assert cluster.primary is first
        assert (await replication(second))["master_port"] == str(first.target.port)
    finally:
        await cluster.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port that was free may be gone when its server starts")
def test_the_port_of_a_server_that_is_not_up_is_given_to_nobody_else() -> None:
    """Neither before it has started nor while it is dead: a connection that had it would keep it away."""
    [port] = free_ports(1)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    socket.create_server(("127.0.0.1", port)).close()


def test_a_failover_that_nobody_ordered_is_seen_in_the_history(true: list[bytes], tmp_path: Path) -> None:
    """A replica of a slow machine takes over by itself; what its primary knew last of spend and effects may be gone."""
    whole = tmp_path / "whole.jsonl"
    whole.write_bytes(b"".join(true))
    assert not restarted(whole)
    history = History.of(true)
    EDITS["run.P12"](history)  # which adds the entry
    whole.write_bytes(b"".join(history.export()))
    assert restarted(whole)
