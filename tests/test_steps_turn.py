"""A conversation is given up on a real server: what it did outside is undone first, or the next one does not begin.

The new conversation starts over and knows nothing of the old one. An effect of the old one that still stands would then
be made twice; one that is still on its way would land beside it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from bus.chain import EMPTY_HEAD, next_head
from bus.events import StoredEvent
from bus.port import Group, IntentState, RunState
from bus.target import Target
from bus.types import Digest, Verb
from tests.batches import W1, W2, Batch, opened, refused
from tests.tool_calls import BOUND_MS, INVERSES, Tools


@pytest.fixture
async def batch(server: Target) -> AsyncIterator[Batch]:
    """Two runs, admitted."""
    async with opened(server.address(), runs=2, limits={"ack_bound_ms": BOUND_MS, "inverses": INVERSES}) as one:
        await one.admit()
        yield one


@pytest.fixture
async def tools(batch: Batch) -> Tools:
    """One of them in w1's hands."""
    one = await Tools.open(batch)
    await one.clock(0)
    return one


async def in_flight(tools: Tools) -> bool:
    """Whether a turn waits for undos, or for who knows what became of a call."""
    decision = await tools.turn()
    assert decision.verb in (Verb.COMMIT, Verb.IN_DOUBT), decision
    return decision.reason == "in_flight"


async def test_a_conversation_that_did_nothing_outside_is_given_up_at_once(tools: Tools) -> None:
    """The next chain begins with an event that names the old head; the old chain stays where it is."""
    bus, batch, old = tools.batch.bus, tools.batch, tools.ref
    appended = await bus.append(old, EMPTY_HEAD, 1, ["one", "two"])
    tools.head = appended.answer["head"]
    decision = await tools.turn()
    payload = f"gave {appended.answer['head'][:8]} up"
    assert decision.answer == {"conversation": 1, "head": next_head(EMPTY_HEAD, payload), "length": 1}
    assert [event.payload for event in await bus.transcript(batch.name, old.run)] == [payload]
    kept = await batch.wire.call("LRANGE", batch.keys.transcript(old.run, 0), 0, -1)
    assert [StoredEvent.read(item).payload for item in kept] == ["one", "two"]
    (row,) = await bus.rows(batch.name, [old.run])
    assert (row.state, row.conversation, row.length) == (RunState.RUNNING, 1, 1)
    (record,) = await batch.history("run.turn")
    assert record.verbs == (
        "transcript.fence commit",
        "indoubt.turn commit",
        "transcript.lease commit",
        "transcript.append commit",
    )


async def test_a_transcript_whose_head_is_known_is_found_in_its_conversation(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first one with a single command, in a later one although the first is still there."""
    bus, batch, run = tools.batch.bus, tools.batch.name, tools.ref.run
    appended = await bus.append(tools.ref, EMPTY_HEAD, 1, ["one", "two"])
    tools.head = appended.answer["head"]
    with monkeypatch.context() as patched:
        patched.setattr(bus.link, "commands", None)
        found = await bus.transcript(batch, run, tools.head)
    assert found == await bus.transcript(batch, run)
    assert [event.payload for event in found] == ["one", "two"]
    turned = await tools.turn()
    found = await bus.transcript(batch, run, turned.answer["head"])
    assert [event.payload for event in found] == [f"gave {appended.answer['head'][:8]} up"]


async def test_a_turn_that_is_sent_again_is_the_same_turn(tools: Tools) -> None:
    """Its answer was lost. Not one conversation more."""
    bus, ref = tools.batch.bus, tools.ref
    first = await bus.turn(ref, EMPTY_HEAD, "again")
    async with tools.batch.unchanged():
        again = await bus.turn(ref, EMPTY_HEAD, "again")
        assert (again.verb, again.answer) == (Verb.DUPLICATE, first.answer)
        assert (await bus.turn(ref, EMPTY_HEAD, "another")).reason == "run_mismatch"


async def test_the_next_conversation_goes_on_under_the_same_lease(tools: Tools) -> None:
    """Appended, announced, joined, sealed: fence 7 knows the holder by another name, its holder by the same."""
    await tools.turn()
    assert (await tools.batch.bus.append(tools.ref, tools.head, 2, ["two"])).verb is Verb.COMMIT
    tools.head, tools.length = next_head(tools.head, "two"), 2
    fan_out = await tools.put(1)
    await tools.done()
    assert (await tools.join(fan_out)).verb is Verb.COMMIT
    assert (await tools.batch.bus.seal(tools.ref, tools.head, 4, "answer", "", "")).verb is Verb.COMMIT
    assert await tools.states() == {"1.1.0": IntentState.COMMITTED}


async def test_what_is_still_said_of_the_old_conversation_belongs_nowhere(tools: Tools) -> None:
    """A command that was under way while the conversation was given up."""
    bus, old, head = tools.batch.bus, tools.ref, tools.head
    late = tools.fan_out(1)
    await tools.turn()
    async with tools.batch.unchanged():
        assert (await bus.append(old, head, 1, ["late"])).reason == "run_mismatch"
        assert (await bus.put_tools(old, late)).reason == "run_mismatch"
        assert (await bus.join(old, late, "late")).reason == "run_mismatch"
        assert (await bus.write(old, f"{old.run}~0.1.w", "a", Digest("b" * 64), "r")).reason == "run_mismatch"
        assert (await bus.turn(replace(old, conversation=7), head, "late")).reason == "run_mismatch"


async def test_a_turn_must_know_what_it_gives_up(tools: Tools) -> None:
    """The head that its first event names is the old chain's. Who is behind learns it here, and marks nothing."""
    async with tools.batch.unchanged():
        decision = await tools.batch.bus.turn(tools.ref, Digest("f" * 64), "wrong")
        assert refused(decision) == "reject forged_prefix (run.turn)"
    assert (await tools.put(1)).seq == 1
    await tools.done()


async def test_what_was_committed_is_undone_before_the_next_conversation_begins(tools: Tools) -> None:
    """The latest first. Until then the holder may do nothing else; asked again, it finds the same undos."""
    fan_out = await tools.put(2)
    await tools.done()
    await tools.done()
    await tools.join(fan_out)
    assert await in_flight(tools)
    assert await tools.messages() == ["0.1.1~undo", "0.1.0~undo"]
    assert (await tools.batch.bus.counters(tools.batch.name)).effects_open == 4
    (record,) = await tools.batch.history("run.turn")
    assert record.verbs == 2 * ("outbox.revoke commit", "plane.undo commit")
    undos = await tools.batch.wire.call("XRANGE", tools.batch.keys.undo(tools.batch.bus.plane), "-", "+")
    keys = [flat[1].decode() for _, flat in undos]
    assert keys == [f"live:{tools.ref.run}:{one.id}" for one in reversed(fan_out.intents)]
    async with tools.batch.unchanged():
        assert await in_flight(tools)
    undo = await tools.done()
    assert undo.answer.answer["undo"] == fan_out.intents[1].id
    assert await in_flight(tools)
    await tools.done()
    assert not await in_flight(tools)
    assert set((await tools.states()).values()) == {IntentState.COMPENSATED, IntentState.COMMITTED}
    assert (await tools.batch.bus.counters(tools.batch.name)).effects_open == 0
    assert (await tools.batch.bus.seal(tools.ref, tools.head, 2, "answer", "", "")).verb is Verb.COMMIT


async def test_undos_are_asked_for_from_the_latest_effect_back(tools: Tools) -> None:
    """A later effect may build on an earlier one. Steps and calls are counted, not spelt: 10 comes after 9."""
    fan_out = await tools.put(11)
    for _ in range(11):
        await tools.done()
    await tools.join(fan_out)
    await tools.put(1, n=10)
    await tools.done()
    assert await in_flight(tools)
    assert await tools.messages() == ["0.10.0~undo", *(f"0.1.{i}~undo" for i in reversed(range(11)))]


@pytest.mark.parametrize("claimed", [False, True], ids=["queued", "executing"])
async def test_what_has_not_left_is_given_up_and_cannot_leave_any_more(tools: Tools, claimed: bool) -> None:
    """Its message is off, its window closed; an executor that has it in its hands finds that it may not send."""
    await tools.put(1)
    call = await tools.claimed() if claimed else None
    assert not await in_flight(tools)
    assert await tools.states() == {"0.1.0": IntentState.FAILED}
    assert await tools.messages() == []
    if call:
        async with tools.batch.unchanged():
            assert (await tools.send(call)).reason == "not_claimed"
            assert (await tools.claim(call.entry)).answer.reason == "not_owner"
    assert "join.expire commit" in (await tools.batch.history("run.turn"))[-1].verbs
    assert (await tools.batch.bus.seal(tools.ref, tools.head, 2, "answer", "", "")).verb is Verb.COMMIT


async def test_a_call_that_may_have_landed_holds_the_turn_up(tools: Tools) -> None:
    """Its outcome may still come: then it is undone. Or its bound passes: likewise."""
    await tools.put(2)
    one, other = await tools.sent(), await tools.sent()
    assert await in_flight(tools)
    async with tools.batch.unchanged():
        assert await in_flight(tools)
    assert (await tools.complete(one)).verb is Verb.COMMIT
    assert await in_flight(tools)
    await tools.clock(BOUND_MS)
    assert (await tools.taken(other)).answer.verb is Verb.COMPENSATE
    await tools.done()
    await tools.done()
    assert not await in_flight(tools)
    assert set((await tools.states()).values()) == {IntentState.COMPENSATED, IntentState.COMMITTED}


@pytest.mark.parametrize("how", ["committed", "stuck"])
async def test_what_cannot_be_undone_ends_the_run_and_nothing_of_it_is_undone(tools: Tools, how: str) -> None:
    """A turn is whole or not at all: the other effect, which could be undone, stands as it did."""
    await tools.put(1, "pay")
    call = await tools.sent()
    if how == "committed":
        await tools.complete(call)
    else:
        await tools.clock(BOUND_MS)
        await tools.taken(call)
    other = await tools.batch.bus.put_tools(tools.ref, replace(tools.fan_out(1, n=2), seq=2))
    assert other.verb is Verb.COMMIT
    await tools.done()
    decision = await tools.turn()
    assert (decision.verb, decision.reason) == (Verb.REJECT, "stuck")
    assert (await tools.states())["0.2.0"] is IntentState.COMMITTED
    assert await tools.messages() == []
    async with tools.batch.unchanged():
        assert (await tools.turn()).reason == "stuck"
    assert (await tools.batch.bus.hole(tools.ref, "stuck", "")).verb is Verb.COMMIT


async def test_once_begun_a_turn_is_ended_by_whoever_holds_the_run(tools: Tools) -> None:
    """The holder died in the middle. Its successor is told, and may do nothing but go on turning."""
    fan_out = await tools.put(1)
    await tools.done()
    await tools.join(fan_out)
    assert await in_flight(tools)
    async with tools.batch.unchanged():
        assert refused(await tools.batch.bus.put_tools(tools.ref, tools.fan_out(1, n=2))) == (
            "reject turning (run.put_tools)"
        )
        assert (await tools.join(fan_out)).reason == "turning"
        assert (await tools.batch.bus.seal(tools.ref, tools.head, 2, "answer", "", "")).reason == "turning"
    await tools.batch.taken(tools.entry, W2)
    held = await tools.batch.claimed(W2, tools.entry)
    assert held.decision.answer["turning"]
    later = replace(tools, ref=held.ref)
    async with tools.batch.unchanged():
        assert (await tools.turn()).reason == "stale_gen"
        assert await in_flight(later)
        assert (await tools.batch.bus.seal(later.ref, later.head, 2, "answer", "", "")).reason == "turning"
    await later.done()
    assert not await in_flight(later)
    row = await tools.batch.row(tools.ref.run)
    assert "turning" not in row
    assert (row["lease"], row["t.lease"]) == (later.ref.lease_id, f"{later.ref.lease_id}~1")
    assert (await tools.batch.bus.seal(later.ref, later.head, 2, "answer", "", "")).verb is Verb.COMMIT


async def test_a_turned_run_is_claimed_in_its_new_conversation(tools: Tools) -> None:
    """The successor resumes from there, under a lease that fence 7 knows by its own name again; and may turn too."""
    await tools.turn()
    later = await tools.succeeded()
    assert (later.ref.conversation, later.length, later.head) == (1, 1, tools.head)
    async with tools.batch.unchanged():
        # To fence 7 the old lease is one of the old chain.
        assert (await tools.batch.bus.append(tools.ref, tools.head, 2, ["late"])).reason == "run_mismatch"
        assert (await tools.batch.bus.put_tools(tools.ref, tools.fan_out(1))).reason == "run_mismatch"
    assert (await later.turn()).answer["conversation"] == 2
    assert (await tools.batch.bus.seal(later.ref, later.head, 2, "answer", "", "")).verb is Verb.COMMIT


async def test_undos_of_a_turn_go_on_when_its_run_ends(tools: Tools) -> None:
    """The operator ended it in the middle. The close waits for the undos, and they are made."""
    await tools.put(1)
    await tools.done()
    assert await in_flight(tools)
    await tools.batch.bus.hole(tools.ref, "operator", "")
    assert (await tools.batch.bus.counters(tools.batch.name)).effects_open == 2
    await tools.done()
    assert (await tools.batch.bus.counters(tools.batch.name)).effects_open == 0
    assert await tools.batch.pending(Group.TOOLS) == {}


async def test_a_conversation_with_more_effects_than_one_turn_takes_is_given_up_in_pieces(tools: Tools) -> None:
    """Work in one script is bounded."""
    await tools.put(60)
    assert (await tools.batch.bus.put_tools(tools.ref, replace(tools.fan_out(60, n=2), seq=2))).verb is Verb.COMMIT
    assert await in_flight(tools)
    assert len(await tools.messages()) == 20
    assert not await in_flight(tools)
    assert await tools.messages() == []
    assert set((await tools.states()).values()) == {IntentState.FAILED}


async def test_another_runs_effects_are_left_alone(batch: Batch, tools: Tools) -> None:
    """A turn is one run's."""
    other = await Tools.open(batch, consumer=W1)
    other.names = tools.names
    await other.put(1)
    await tools.turn()
    assert await other.states() == {"0.1.0": IntentState.QUEUED}
    await other.done()
