"""What strikes when: drawn from the seed, in rounds, and only where it makes sense."""

from __future__ import annotations

from itertools import islice

import pytest

from bus.errors import InputError
from workers.chaos.faults import FAULTS_THAT_LOSE, Fault, World, read_faults, world_of
from workers.chaos.plan import POINTS, Strike, strikes


def first(seed: int, count: int, faults: tuple[Fault, ...] = tuple(Fault)) -> list[Strike]:
    """The first strikes of a plan."""
    return list(islice(strikes(seed, World.SURE, faults, POINTS), count))


def test_the_same_seed_gives_the_same_strikes() -> None:
    """A found violation is looked at again by its seed."""
    assert first(7, 100) == first(7, 100)
    assert first(7, 100) != first(8, 100)


def test_each_round_holds_every_fault_once() -> None:
    """A short chaos has met many faults, and none of them twice while another one waits."""
    for at in (0, len(Fault)):
        assert {strike.fault for strike in first(3, 2 * len(Fault))[at : at + len(Fault)]} == set(Fault)


def test_a_strike_picks_among_those_that_are_there_in_no_order_of_theirs() -> None:
    """Processes come up in any order; the plan must not depend on it."""
    strike = first(1, 1)[0]
    assert strike.of(["b", "a", "c"]) == strike.of(["c", "b", "a"])
    assert strike.of(["only"]) == "only"


def test_every_fault_can_strike_somewhere_and_those_that_lose_only_where_nothing_is_compared() -> None:
    """The books of a world that promises to lose nothing are compared: so nothing there may lose."""
    for fault in Fault:
        assert any(world_of(fault, world) for world in World), fault
    assert not any(world_of(fault, World.SURE) for fault in FAULTS_THAT_LOSE)


@pytest.mark.parametrize(
    ("fault", "only"), [(Fault.FAILOVER, World.REPLICATED), (Fault.CLUSTER_FAILOVER, World.CLUSTER)]
)
def test_a_failover_strikes_where_there_is_somebody_to_fail_over_to(fault: Fault, only: World) -> None:
    """And processes, streams and the endpoint fail there as they do elsewhere."""
    assert [world for world in World if world_of(fault, world)] == [only]
    everywhere = (Fault.KILL, Fault.STOP, Fault.REDELIVER, Fault.COPY_ENTRY, Fault.SCRIPT_FLUSH, Fault.ENDPOINT)
    assert all(world_of(one, only) for one in everywhere)


def test_faults_are_named_added_and_taken_away() -> None:
    """In the order of the table, whatever the order of the words."""
    assert read_faults("stop, kill") == (Fault.KILL, Fault.STOP)
    assert read_faults(None) == tuple(Fault)
    assert Fault.FAILOVER not in read_faults("all,-failover")


@pytest.mark.parametrize(("written", "remedy"), [("kil", "did you mean kill?"), ("kill,-kill", "choose of kill")])
def test_a_wrong_fault_is_named_with_a_remedy(written: str, remedy: str) -> None:
    """Misspelt, or none left."""
    with pytest.raises(InputError, match=remedy.replace("?", r"\?")):
        read_faults(written)
