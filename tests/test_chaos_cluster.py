"""The cluster that chaos starts: what dies there is replaced, and comes back behind whoever replaced it."""

from __future__ import annotations

from pathlib import Path

from bus.keys import slot_of
from bus.types import Plane
from tests.editable import History
from tests.editable import true as true  # noqa: PLC0414 - the fixture
from tests.tampered import EDITS
from workers.chaos.cluster_set import ClusterSet
from workers.chaos.examining import restarted
from workers.chaos.several import replication


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


def test_a_failover_that_nobody_ordered_is_seen_in_the_history(true: list[bytes], tmp_path: Path) -> None:
    """A replica of a slow machine takes over by itself; what its primary knew last of spend and effects may be gone."""
    whole = tmp_path / "whole.jsonl"
    whole.write_bytes(b"".join(true))
    assert not restarted(whole)
    history = History.of(true)
    EDITS["run.P12"](history)  # which adds the entry
    whole.write_bytes(b"".join(history.export()))
    assert restarted(whole)
