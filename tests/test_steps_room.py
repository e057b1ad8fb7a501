"""Room, and who waits for it: the plane's, the desks' and the budget's; what is named a hole when there is none left.

The planner admits while all three have room, and the scripts have the last word: two planners that each saw room for
one run more must not admit two. A batch closes when nothing that it began is still under way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

import pytest

from bus.chain import EMPTY_HEAD
from bus.port import Counters, Group, NextRuns, Runtime
from bus.target import Target
from bus.types import MAX_INT, Plane, RunId, Verb
from tests.batches import P1, W1, Batch, opened, refused
from tests.limits import ALL
from tests.model_calls import asked, desk_of
from tests.tool_calls import fan_out
from workers.catalogue import Catalogue, Served
from workers.planner import Planner, _Watch
from workers.runtime import SystemRuntime
from workers.suite import Suite


@pytest.fixture
async def budgeted(server: Target) -> AsyncIterator[Batch]:
    """Five runs, nothing admitted yet, a hundred tokens for all of them."""
    limits = {"compute_retries": 3, "model_retries": 1, "model_slots": 4, "budget": 100}
    async with opened(server.address(), runs=5, limits=limits) as one:
        yield one


async def shadow(server: Target, *, runs: int = 5, **spec: object) -> Batch:
    """A batch on the shadow plane."""
    return await Batch.open(server.address(), runs=runs, plane=Plane.SHADOW, **spec)  # type: ignore[arg-type]


async def spend(batch: Batch, **totals: int) -> None:
    """Let the batch's totals be these, as its calls would have made them."""
    words = [word for pair in totals.items() for word in pair]
    await batch.wire.call("HSET", batch.keys.batch_row, *words)


# --- create -----------------------------------------------------------------------------------------------


async def test_a_batch_has_the_desks_that_it_declares(server: Target) -> None:
    """Places at an endpoint, for the candidate and for the judge; both are swept after the same time."""
    async with opened(server.address(), limits={"model_slots": 3, "judge_slots": 2}, reclaim_ms=700) as batch:
        for name, bound in (("runs", "64"), ("model", "3"), ("judge", "2")):
            desk = await batch._hash(batch.keys.desk(name))
            assert (desk["bound"], desk["reclaim_ms"]) == (bound, "700")


async def test_no_bound_is_declared_where_none_is_meant(server: Target) -> None:
    """A run with calls and no budget may spend what it likes: no zero stands in for the number that is missing."""
    async with opened(server.address(), limits={"compute_retries": 1}) as batch:
        assert await batch.batch_field("budget") == str(MAX_INT)


async def test_a_batch_without_calls_has_neither_budget_nor_capacity(server: Target) -> None:
    """What is not declared is not compared."""
    async with opened(server.address()) as batch:
        row = await batch._hash(batch.keys.batch_row)
        assert not {"budget", "capacity"} & row.keys()


async def test_workers_read_their_second_stream_under_the_same_group(server: Target) -> None:
    """Its group is there before the first tool is asked for, also when it has to be made again."""
    async with opened(server.address(), limits=ALL) as batch:
        await batch.admit()
        held = await batch.claimed()
        assert await batch.bus.undelivered(batch.name, Group.TOOLS) == 0
        await batch.wire.call("XGROUP", "DESTROY", batch.keys.stream("tools"), "worker")
        assert (await batch.bus.put_tools(held.ref, fan_out(held.ref, "book"))).verb is Verb.COMMIT
        entry = await batch.delivered(W1, Group.TOOLS)
        assert entry.fields["intent"] == f"{held.ref.run}~0.1.0"
        assert await batch.bus.undelivered(batch.name, Group.TOOLS) == 1


# --- admit ------------------------------------------------------------------------------------------------


async def test_a_run_is_admitted_to_its_plane_until_it_ends(server: Target) -> None:
    """Its admission is its place's: held while it runs, given back once, and its result is written under it once."""
    async with opened(server.address(), runs=1) as batch:
        await batch.admit()
        (record,) = await batch.history("run.admit")
        parts = ("plane.admit commit", "admission.acquire commit", "judge.mint commit", "histogram.drain commit")
        assert record.verbs == parts
        place = (await batch.row(batch.runs[0]))["place"]
        planes = await batch._hash(batch.keys.planes)
        assert planes == {f"a:{place}": "held live:c0#1:result", "k:live:c0#1:result": place}
        await batch.scored()
        assert await batch._hash(batch.keys.planes) == {f"a:{place}": "released live:c0#1:result"}


async def test_a_shadow_plane_admits_as_many_as_its_capacity(server: Target) -> None:
    """The runs and the tools of a shadow batch share it. A full one stops the admission, and is never passed."""
    batch = await shadow(server, limits={"capacity": 2})
    first = await batch.admit()
    assert (first.answer["admitted"], first.answer["why_stopped"]) == (2, "capacity")
    async with batch.unchanged():
        assert refused(await batch.admit()) == "reject capacity (plane.admit)"
    assert await batch.refusals() == {"capacity": 1}
    await batch.end(batch.runs[0])
    assert (await batch.admit()).answer["admitted"] == 1
    planes = await batch._hash(batch.keys.planes)
    assert planes["in_flight"] == "2"
    await batch.check()
    await batch.aclose()


async def test_a_shadow_plane_without_a_capacity_has_room_for_the_bound(server: Target) -> None:
    """Nothing declared is not no room: the batch may have as many runs at once as its bound says."""
    batch = await shadow(server, bound=3)
    first = await batch.admit()
    assert (first.answer["admitted"], first.answer["why_stopped"]) == (3, "capacity")
    await batch.check()
    await batch.aclose()


async def test_the_live_plane_has_no_capacity(server: Target) -> None:
    """A number that was declared for the shadow plane must not hold live runs up."""
    async with opened(server.address(), limits={"capacity": 1}) as batch:
        assert (await batch.admit()).answer["admitted"] == 3


@pytest.mark.parametrize(("spent", "reserved", "expected", "fits"), [
    (60, 20, 20, True), (60, 20, 21, False), (100, 0, 0, True), (101, 0, 0, False), (0, 101, 0, False),
])  # fmt: skip
async def test_a_run_is_admitted_when_the_budget_has_room_for_one(
    budgeted: Batch, spent: int, reserved: int, expected: int, fits: bool
) -> None:
    """What was spent and what is reserved count alike; a run that just fits is admitted. Nothing is reserved for it."""
    await spend(budgeted, spent=spent, reserved=reserved)
    before = await budgeted._hash(budgeted.keys.batch_row)
    decision = await budgeted.bus.admit(
        budgeted.name, NextRuns(0, budgeted.runs[:1], [], P1, "candidate", "judge", expected)
    )
    if fits:
        assert (decision.verb, decision.answer["admitted"]) == (Verb.COMMIT, 1)
    else:
        assert refused(decision) == "reject over_budget (run.admit)"
        assert await budgeted.refusals() == {"over_budget": 1}
    after = await budgeted._hash(budgeted.keys.batch_row)
    assert (after["spent"], after["reserved"]) == (before["spent"], before["reserved"])


async def test_a_batch_without_a_budget_admits_whatever_a_run_costs(server: Target) -> None:
    """There is no number to compare with."""
    async with opened(server.address()) as batch:
        decision = await batch.bus.admit(batch.name, NextRuns(0, batch.runs, [], P1, "candidate", "judge", 10**9))
        assert decision.answer["admitted"] == 3


# --- close ------------------------------------------------------------------------------------------------


async def test_a_batch_does_not_close_while_an_effect_is_under_way(server: Target) -> None:
    """Its run is a hole; the call that it made may still land, and may have to be undone."""
    async with opened(server.address(), runs=1, limits=ALL) as batch:
        await batch.admit()
        held = await batch.claimed()
        await batch.bus.put_tools(held.ref, fan_out(held.ref, "book"))
        await batch.bus.hole(held.ref, "solver_error", "boom")
        assert (await batch.bus.counters(batch.name)).effects_open == 1
        async with batch.unchanged():
            assert refused(await batch.bus.close(batch.name, "x", 0)) == "in_doubt in_flight (run.close)"
        entry = await batch.delivered(W1, Group.TOOLS)
        assert (await batch.bus.tool_claim(entry, "executor", W1)).reason == "ended"
        assert (await batch.bus.close(batch.name, "x", 0)).reason == "below_quorum"


async def test_after_the_close_no_answer_of_a_model_is_bound(server: Target) -> None:
    """The watermark of fence 4 goes with the close: a late answer is after it, whoever brings it."""
    async with opened(server.address(), runs=1, limits=ALL) as batch:
        await batch.admit()
        await batch.scored()
        assert (await batch.bus.close(batch.name, "x", 1)).verb is Verb.COMMIT
        (record,) = await batch.history("run.close")
        assert record.verbs == ("histogram.close commit", "completion.close commit")
        assert await batch.batch_field("watermark") == "1"


# --- the planner --------------------------------------------------------------------------------------------


SUITE = {"cases": [{"id": "a"}], "solver": {"python": "a.py:solve"}, "scorer": {"kind": "exact"}}


async def planner_of(batch: Batch) -> tuple[Planner, Served]:
    """A planner, and the batch as it is served."""
    info = await batch.bus.info(batch.name)
    assert info is not None
    runtime: Runtime = SystemRuntime()
    served = Served(info, Suite.model_validate(SUITE), tuple(batch.runs), "candidate", "judge", batch.name)
    return Planner(batch.bus, runtime, P1, cast("Catalogue", None)), served


async def tended(batch: Batch) -> Counters:
    """The counters after a planner has looked after the batch once, with all wake-ups that there are."""
    planner, served = await planner_of(batch)
    woken = await batch.bus.read(Group.PLANNER, P1, [batch.name], 100, 1)
    await planner.tend(served, woken)
    return await batch.bus.counters(batch.name)


async def test_a_planner_does_not_wait_for_runs_that_only_a_person_can_go_on_with(budgeted: Batch) -> None:
    """It lets wake-ups come together while others wait for a scorer. Parked ones kept each worker idle for it."""
    planner, _ = await planner_of(budgeted)
    counters = replace(await budgeted.bus.counters(budgeted.name), in_flight=3, running=1)
    planner._watches[budgeted.name] = _Watch()
    assert planner._pause(budgeted.name, replace(counters, review=1), 1) > 0
    planner._watches[budgeted.name] = _Watch()
    assert planner._pause(budgeted.name, replace(counters, review=2), 1) == 0


async def test_when_the_budget_is_gone_what_was_never_admitted_is_a_hole(budgeted: Batch) -> None:
    """Two runs cost what there was: the other three are named, and the batch closes over two."""
    await budgeted.admit(2)
    for _ in range(2):
        await budgeted.scored()
    await spend(budgeted, spent=90)
    counters = await tended(budgeted)
    assert (counters.hole_reasons, counters.scored, counters.cursor) == ({"over_budget": 3}, 2, 5)
    assert counters.snapshot_id is not None
    assert await budgeted.refusals() == {}
    rows = await budgeted.bus.rows(budgeted.name, budgeted.runs)
    assert [row.hole for row in rows] == ["", "", "over_budget", "over_budget", "over_budget"]
    await spend(budgeted, spent=0)


@pytest.mark.parametrize("left", ["reserved", "running"])
async def test_nothing_is_given_up_while_somebody_may_give_budget_back(budgeted: Batch, left: str) -> None:
    """A reservation is the most that a call may cost. When it has cost less, there is room for one run more."""
    await budgeted.admit(2)
    await budgeted.scored()
    if left == "reserved":
        await budgeted.scored()
        await spend(budgeted, spent=80, reserved=30)
    else:
        await spend(budgeted, spent=101)
    counters = await tended(budgeted)
    assert (counters.holes, counters.cursor) == (0, 2)
    assert await budgeted.refusals() == {}
    assert await budgeted.pending(Group.PLANNER) == {}
    await spend(budgeted, spent=0, reserved=0)
    assert (await tended(budgeted)).cursor == 5


@pytest.mark.parametrize(("spent", "holes"), [(66, 0), (68, 3)])
async def test_a_planner_admits_what_it_can_afford_by_what_runs_have_cost(
    budgeted: Batch, spent: int, holes: int
) -> None:
    """Two have cost so much, and a third will cost half of it: at 33 each there is room for it, at 34 there is none."""
    await budgeted.admit(2)
    for _ in range(2):
        await budgeted.scored()
    await spend(budgeted, spent=spent)
    assert (await tended(budgeted)).holes == holes


async def test_a_full_plane_is_asked_once_a_wake_up_and_the_wake_ups_are_taken_off(server: Target) -> None:
    """Each question that is refused is recorded: a planner that went on asking would fill the history with itself."""
    batch = await shadow(server, limits={"capacity": 2})
    assert (await tended(batch)).cursor == 2
    assert await batch.refusals() == {}
    await batch.end(batch.runs[0])
    await batch.wire.call("XADD", batch.keys.stream("results"), "*", "run", batch.runs[0])
    assert (await tended(batch)).cursor == 3
    assert await batch.pending(Group.PLANNER) == {}
    assert (await tended(batch)).cursor == 3
    assert await batch.refusals() == {"capacity": 1}
    await batch.check()
    await batch.aclose()


async def test_a_planner_sweeps_every_desk_that_the_batch_has(server: Target) -> None:
    """A place at an endpoint that is never given back closes the endpoint for ever."""
    async with opened(server.address(), runs=1, limits=ALL, reclaim_ms=1) as batch:
        await batch.wire.call("HSET", batch.keys.batch_row, "clock", 1_000)
        await batch.admit()
        held = await batch.claimed()
        call = asked(held.ref, parent=EMPTY_HEAD)
        assert (await batch.bus.open_call(held.ref, call)).verb is Verb.COMMIT
        await batch.bus.drop_call(held.ref, call, cancelled=False)
        assert await desk_of(batch) == {call.desk_lease: "expired"}
        await batch.wire.call("HSET", batch.keys.batch_row, "clock", 1_001)
        await tended(batch)
        assert await desk_of(batch) == {}


async def test_a_tools_message_that_got_lost_is_emitted_anew(server: Target) -> None:
    """The stream was cut, and its group knows nothing of the call: without a new message the batch would never close.

    The planner looks when nothing has moved for two lease times; a message that somebody has is left with him.
    """
    async with opened(server.address(), runs=1, limits=ALL) as batch:
        await batch.admit()
        held = await batch.claimed()
        await batch.bus.put_tools(held.ref, fan_out(held.ref, "book", "look"))
        has_it = await batch.delivered(W1, Group.TOOLS)
        planner, served = await planner_of(batch)
        served = replace(served, info=replace(served.info, spec=replace(served.info.spec, lease_ms=0)))
        await planner.tend(served, [])
        await planner.tend(served, [])
        assert await batch.history("run.tool_requeue") == []
        stream = batch.keys.stream("tools")
        await batch.wire.call("XTRIM", stream, "MAXLEN", 0)
        await batch.wire.call("XGROUP", "DESTROY", stream, "worker")
        await planner.tend(served, [])
        found = [await batch.delivered(W1, Group.TOOLS) for _ in range(2)]
        step = f"{held.ref.run}~0.1"
        assert sorted(entry.fields["intent"] for entry in found) == [f"{step}.0", f"{step}.1"]
        assert has_it.id not in {entry.id for entry in found}


async def test_a_planner_does_not_read_all_rows_while_an_effect_is_under_way(server: Target) -> None:
    """It would compute a snapshot each second, and be told each time that it is too early."""
    async with opened(server.address(), runs=1, limits=ALL) as batch:
        await batch.admit()
        held = await batch.claimed()
        await batch.bus.put_tools(held.ref, fan_out(held.ref, "book"))
        await batch.bus.hole(held.ref, "solver_error", "boom")
        await tended(batch)
        assert await batch.history("run.close") == []
        assert RunId(held.ref.run) in await batch.waiting(Group.TOOLS)
