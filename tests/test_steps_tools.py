"""A tool's steps on a real server: announced, claimed, sent, completed, joined; and what is left when somebody dies.

An effect outside cannot be taken back by forgetting it. So everything here is about who may still call (one, once),
what an outcome that comes late is worth, and what becomes of a call of which nobody says anything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from bus.port import Group, IntentState, Receipt
from bus.target import Target
from bus.types import Decision, Digest, EntryId, Gen, LeaseId, RunId, Verb
from tests.batches import W1, W2, opened, refused
from tests.tool_calls import BOUND_MS, INVERSES, ToolCall, Tools

LIMITS = {"ack_bound_ms": BOUND_MS, "inverses": INVERSES}


@pytest.fixture
async def tools(server: Target) -> AsyncIterator[Tools]:
    """One run, claimed by w1; another waits. Executors are of w2."""
    async with opened(server.address(), runs=2, limits=LIMITS) as batch:
        await batch.admit()
        one = await Tools.open(batch)
        await one.clock(0)
        yield one


async def commands(tools: Tools, *names: str) -> dict[str, int]:
    """How often each command was applied."""
    return {name: await tools.batch.commits(f"run.{name}") for name in names}


async def parts(tools: Tools, command: str) -> tuple[str, ...]:
    """What the last command of a name was made of."""
    return (await tools.batch.history(f"run.{command}"))[-1].verbs


# --- the whole way ----------------------------------------------------------------------------------------


async def test_a_fan_out_is_announced_executed_and_joined(tools: Tools) -> None:
    """One event of the transcript for all three; every message is off, every place free."""
    fan_out = await tools.put(3)
    assert await tools.messages() == ["0.1.0", "0.1.1", "0.1.2"]
    assert (await tools.batch.bus.counters(tools.batch.name)).effects_open == 3
    for _ in range(3):
        await tools.done()
    assert (await tools.join(fan_out)).answer["length"] == 1
    assert set((await tools.states()).values()) == {IntentState.COMMITTED}
    assert await tools.messages() == []
    counters = await tools.batch.bus.counters(tools.batch.name)
    assert (counters.effects_open, counters.stuck) == (0, 0)
    (event,) = await tools.batch.bus.transcript(tools.batch.name, tools.ref.run)
    assert event.payload == "joined"
    assert (await tools.batch.bus.seal(tools.ref, tools.head, 2, "answer", "", "")).verb is Verb.COMMIT


async def test_each_step_is_recorded_with_the_operations_that_it_is_made_of(tools: Tools) -> None:
    """What replays them in the models reads these."""
    fan_out = await tools.put(2)
    assert await parts(tools, "put_tools") == (
        "transcript.intend commit", "join.admit commit", "outbox.put commit", "outbox.put commit",
    )  # fmt: skip
    call = await tools.claimed()
    assert await parts(tools, "tool_claim") == ("outbox.claim commit",)
    await tools.send(call)
    assert await parts(tools, "tool_sent") == (
        "outbox.sent commit", "plane.admit commit", "indoubt.reserve commit", "indoubt.prepare commit",
    )  # fmt: skip
    await tools.complete(call)
    assert await parts(tools, "tool_complete") == (
        "outbox.complete commit", "indoubt.bind commit", "plane.write commit", "plane.release commit",
    )  # fmt: skip
    await tools.done()
    await tools.join(fan_out)
    assert await parts(tools, "join") == (
        "join.result commit", "join.result commit", "join.commit commit", "transcript.append commit",
    )  # fmt: skip


async def test_every_command_that_is_sent_again_gets_its_first_answer_and_changes_nothing(tools: Tools) -> None:
    """Its answer was lost on the way."""
    bus, batch, ref = tools.batch.bus, tools.batch, tools.ref

    async def again(decision: Decision, first: Decision) -> None:
        assert (decision.verb, decision.answer) == (Verb.DUPLICATE, first.answer)

    fan_out = tools.fan_out(1)
    first = await bus.put_tools(ref, fan_out)
    async with batch.unchanged():
        await again(await bus.put_tools(ref, fan_out), first)
    call = await tools.claimed()
    async with batch.unchanged():
        await again((await tools.claim(call.entry, executor=call.executor)).answer, call.answer)
    sent = await tools.send(call)
    async with batch.unchanged():
        await again(await tools.send(call), sent)
    completed = await tools.complete(call)
    async with batch.unchanged():
        await again(await tools.complete(call), completed)
    joined = await bus.join(ref, fan_out, "joined")
    async with batch.unchanged():
        await again(await bus.join(ref, fan_out, "joined"), joined)
        assert (await bus.put_tools(ref, fan_out)).verb is Verb.DUPLICATE


async def test_an_executor_is_told_what_to_call(tools: Tools) -> None:
    """Tool and arguments as they were stored; an undo names the key that it undoes, and an ordinary intent none."""
    fan_out = await tools.put(1)
    (intent,) = fan_out.intents
    call = await tools.claimed()
    assert call.answer.answer == {"intent": intent.id, "gen": 1, "tool": "book", "args": intent.args}
    await tools.send(call)
    await tools.clock(BOUND_MS)
    await tools.taken(call)
    undo = await tools.claimed()
    assert undo.answer.answer == {
        "intent": f"{intent.id}~undo",
        "gen": 0,
        "tool": "cancel",
        "args": intent.args,
        "undo": intent.id,
    }


# --- put_tools --------------------------------------------------------------------------------------------


async def test_a_successor_finds_the_effects_that_its_predecessor_announced(tools: Tools) -> None:
    """It asks again under a newer generation. What was stored counts: nothing is announced, or called, twice."""
    fan_out = await tools.put(2)
    await tools.done()
    later = await tools.succeeded()
    async with tools.batch.unchanged():
        decision = await tools.batch.bus.put_tools(later.ref, fan_out)
    assert (decision.verb, decision.answer["states"]) == (Verb.DUPLICATE, ["committed", "queued"])
    await later.done()
    assert (await later.join(fan_out)).verb is Verb.COMMIT
    assert await commands(tools, "put_tools", "tool_complete", "join") == {
        "put_tools": 1, "tool_complete": 2, "join": 1,
    }  # fmt: skip


async def test_a_step_that_asks_for_something_else_is_refused(tools: Tools) -> None:
    """Other arguments, fewer calls or more: the solver went another way than the one that was recorded."""
    await tools.put(2)
    others = [tools.fan_out(2, room="red"), tools.fan_out(2, "pay"), tools.fan_out(1), tools.fan_out(3)]
    async with tools.batch.unchanged():
        for other in others:
            assert (await tools.batch.bus.put_tools(tools.ref, other)).reason == "args_mismatch"


async def test_a_fan_out_of_a_holder_that_lost_its_run_is_refused(tools: Tools) -> None:
    """Whatever it is still saying; also its join."""
    fan_out = await tools.put(1)
    await tools.done()
    await tools.succeeded()
    async with tools.batch.unchanged():
        assert (await tools.batch.bus.put_tools(tools.ref, tools.fan_out(1, n=2))).reason == "stale_gen"
        assert (await tools.join(fan_out)).reason == "stale_gen"


@pytest.mark.parametrize("what", ["no step", "another run", "another step", "a colon", "an undo", "twice", "args"])
async def test_what_could_not_be_told_apart_later_is_refused(tools: Tools, what: str) -> None:
    """The names of steps and intents are unique in the batch, and parts of keys."""
    good = tools.fan_out(2)
    first, second = good.intents
    other = {
        "no step": replace(good, step=f"{tools.ref.run}~1.1"),
        "another run": replace(good, step="c1#1~0.1"),
        "another step": replace(good, intents=[first, replace(second, id=f"{tools.ref.run}~0.2.0")]),
        "a colon": replace(good, intents=[first, replace(second, id=f"{good.step}.1:2")]),
        "an undo": replace(good, intents=[first, replace(second, id=f"{good.step}.1~undo")]),
        "twice": replace(good, intents=[first, first]),
        "args": replace(good, intents=[first, replace(second, args="[1]")]),
    }[what]
    async with tools.batch.unchanged():
        assert refused(await tools.batch.bus.put_tools(tools.ref, other)) == "reject schema (run.put_tools)"


async def test_a_fan_out_in_the_place_of_an_unresolved_call_waits(tools: Tools) -> None:
    """An older generation announced something else there."""
    await tools.put(1)
    later = await tools.succeeded()
    async with tools.batch.unchanged():
        decision = await tools.batch.bus.put_tools(later.ref, later.fan_out(1, n=2))
    assert (decision.verb, decision.reason) == (Verb.IN_DOUBT, "dangling")


async def test_a_window_that_does_not_fit_the_budget_opens_nothing(server: Target) -> None:
    """The case has ended with that, and no intent was put."""
    async with opened(server.address(), runs=1, limits=LIMITS | {"budget": 10}) as batch:
        await batch.admit()
        tools = await Tools.open(batch)
        fan_out = tools.fan_out(2, cost=11)
        assert (await batch.bus.put_tools(tools.ref, fan_out)).reason == "over_budget"
        assert await tools.states() == {}
        assert (await batch.bus.put_tools(tools.ref, fan_out)).reason == "case_closed"
        assert (await batch.bus.put_tools(tools.ref, tools.fan_out(2, n=2, cost=10))).verb is Verb.COMMIT


# --- who may call -----------------------------------------------------------------------------------------


async def test_a_message_that_comes_twice_licenses_one_call(tools: Tools) -> None:
    """Delivered to w1, taken over by w2 who claims; w1 was slow. And a copy of it, as a retried XADD leaves it."""
    await tools.put(1)
    entry = await tools.delivered(W1)
    call = await tools.claim(await tools.batch.taken(entry, W2))
    await tools.send(call)
    fields = [word for pair in entry.fields.items() for word in pair]
    await tools.batch.wire.call("XADD", tools.batch.keys.stream("tools"), "*", *fields)
    copy = await tools.delivered()
    async with tools.batch.unchanged():
        assert (await tools.claim(entry, W1)).answer.reason == "not_owner"
    assert (await tools.claim(copy)).answer.reason == "duplicate_entry"
    assert await tools.batch.pending(Group.TOOLS) == {entry.id: W2}
    assert (await tools.complete(call)).verb is Verb.COMMIT
    assert await commands(tools, "tool_sent") == {"tool_sent": 1}


async def test_a_copy_of_a_message_whose_effect_has_ended_is_taken_off(tools: Tools) -> None:
    """Or whose effect is being undone, or that names none that there is."""
    await tools.put(1)
    call = await tools.done()
    stream = tools.batch.keys.stream("tools")
    for intent in (call.intent, "no such intent"):
        await tools.batch.wire.call("XADD", stream, "*", "run", tools.ref.run, "intent", intent)
        assert (await tools.claim(await tools.delivered())).answer.reason == "duplicate_entry"
    assert await tools.messages() == []


async def test_a_message_that_names_no_intent_is_refused_and_left_to_be_buried(tools: Tools) -> None:
    """Its owner copies it to the dead letters; the effect that it was for is found by its row."""
    await tools.batch.wire.call("XADD", tools.batch.keys.stream("tools"), "*", "run", tools.ref.run)
    entry = await tools.delivered()
    assert refused((await tools.claim(entry)).answer) == "reject schema (run.tool_claim)"
    await tools.batch.bus.dead_letter(entry, W2, "unreadable")
    assert await tools.messages() == []


async def test_an_executor_that_lost_its_claim_may_not_call(tools: Tools) -> None:
    """It slept between claim and send. Nothing had left, so the intent was simply given to another."""
    await tools.put(1)
    slow = await tools.claimed()
    quick = await tools.taken(slow)
    assert quick.answer.verb is Verb.COMMIT
    assert await parts(tools, "tool_claim") == ("outbox.recover commit", "outbox.claim commit")
    async with tools.batch.unchanged():
        assert (await tools.send(slow)).reason == "not_claimed"
        assert (await tools.complete(slow)).reason == "not_claimed"
        assert (await tools.claim(quick.entry, W1, slow.executor)).answer.reason == "executor_reused"
    await tools.send(quick)
    assert (await tools.complete(quick)).verb is Verb.COMMIT


async def test_a_slot_is_one_calls_at_a_time(tools: Tools) -> None:
    """Who finds it taken waits and asks again; nothing of its own asking is left, and its bound has not begun."""
    await tools.put(2)
    one, other = await tools.claimed(), await tools.claimed()
    assert (await tools.send(one, "s")).answer == {"bound_ms": BOUND_MS}
    async with tools.batch.unchanged():
        assert (await tools.send(other, "s")).reason == "slot_busy"
    await tools.complete(one)
    assert (await tools.send(other, "s")).verb is Verb.COMMIT
    await tools.complete(other)


async def test_a_full_shadow_plane_makes_a_call_wait(server: Target) -> None:
    """A shadow batch's runs and calls count together; it never spills into the live plane."""
    async with opened(server.address(), runs=1, limits=LIMITS | {"capacity": 2}) as batch:
        await batch.admit()
        tools = await Tools.open(batch)
        await tools.put(1)
        call = await tools.claimed()
        await batch.wire.call("HSET", batch.keys.planes, "in_flight", 2)
        async with batch.unchanged():
            decision = await batch.bus._step(
                "tool_sent", batch.name, run=tools.ref.run, plane="shadow", intent_id=call.intent, gen=call.gen,
                executor=call.executor, slot="s",
            )  # fmt: skip
            assert decision.reason == "capacity"
        await batch.wire.call("HDEL", batch.keys.planes, "in_flight")


async def test_a_tool_that_silences_each_of_its_executors_is_given_up(tools: Tools) -> None:
    """It kills whoever prepares its call. Claimed as often as a run may be, it fails, and never left."""
    fan_out = await tools.put(1)
    call = await tools.claimed()
    for _ in range(tools.batch.spec.max_deliveries - 1):
        call = await tools.taken(call)
        assert call.answer.verb is Verb.COMMIT
    last = await tools.taken(call)
    assert refused(last.answer) == "reject poison (run.tool_claim)"
    (row,) = await tools.batch.bus.intents(tools.batch.name, tools.ref.run, [call.intent])
    assert (row.state, row.observation) == (IntentState.FAILED, "poison")
    assert await tools.messages() == []
    assert (await tools.join(fan_out)).verb is Verb.COMMIT


@pytest.mark.parametrize("claimed", [False, True], ids=["queued", "executing"])
async def test_no_effect_of_an_ended_run_is_begun(tools: Tools, claimed: bool) -> None:
    """The close waits until none is in doubt; so what has not left is given up, and its message taken off."""
    await tools.put(1)
    call = await tools.claimed() if claimed else None
    entry = call.entry if call else await tools.delivered()
    await tools.batch.bus.hole(tools.ref, "solver_error", "")
    if call:
        async with tools.batch.unchanged():
            assert refused(await tools.send(call)) == "reject ended (run.tool_sent)"
    assert (await tools.claim(entry)).answer.reason == "ended"
    assert await tools.states() == {"0.1.0": IntentState.FAILED}
    assert await tools.messages() == []


async def test_an_effect_goes_on_while_its_run_is_between_two_holders(tools: Tools) -> None:
    """Handed back, the run waits for whoever comes; the effect is its next holder's as much as its last one's."""
    fan_out = await tools.put(1)
    await tools.batch.bus.give_back(tools.ref)
    await tools.done()
    while (entry := await tools.batch.delivered(W2)).run != tools.ref.run:
        pass
    later = await Tools.open(tools.batch, entry, W2)
    assert (await later.join(fan_out)).verb is Verb.COMMIT


# --- what an outcome is worth -----------------------------------------------------------------------------


async def test_an_outcome_counts_whatever_became_of_the_run(tools: Tools) -> None:
    """The effect stands outside; that its run is a hole by now does not undo it, and must not hide it."""
    await tools.put(1)
    call = await tools.sent()
    await tools.batch.bus.hole(tools.ref, "solver_timeout", "")
    assert (await tools.complete(call)).verb is Verb.COMMIT
    assert await tools.states() == {"0.1.0": IntentState.COMMITTED}


async def test_an_outcome_without_its_key_decides_nothing(tools: Tools) -> None:
    """Somebody's success, maybe of another call: the entry stays, and its next delivery settles the matter."""
    await tools.put(1)
    call = await tools.sent()
    async with tools.batch.unchanged():
        for echo in (None, "another"):
            decision = await tools.complete(call, echo=echo)
            assert (decision.verb, decision.reason) == (Verb.IN_DOUBT, "missing_echo")
    assert (await tools.complete(call)).verb is Verb.COMMIT


async def test_a_tool_that_did_nothing_says_so_and_leaves_its_place(tools: Tools) -> None:
    """Failed needs no key. Nothing was written, so there is nothing to undo; another outcome comes too late."""
    fan_out = await tools.put(1)
    call = await tools.done(ok=False)
    async with tools.batch.unchanged():
        assert (await tools.complete(call)).reason == "already_final"
    assert (await tools.join(fan_out)).verb is Verb.COMMIT
    (record,) = await tools.batch.history("run.join")
    assert record.verbs[0] == "join.result commit"


async def test_a_call_that_was_not_sent_may_be_given_up_but_not_succeed(tools: Tools) -> None:
    """Its tool does not exist here. A success of what had no licence is nobody's."""
    await tools.put(1)
    call = await tools.claimed()
    async with tools.batch.unchanged():
        assert (await tools.complete(call)).reason == "lease_mismatch"
        assert (await tools.complete(call, "")).reason == "schema"
    assert (await tools.complete(call, "no such tool", ok=False)).verb is Verb.COMMIT
    assert await parts(tools, "tool_complete") == ("outbox.complete commit",)


async def test_an_outcome_that_comes_after_its_bound_is_refused_also_before_anybody_recovered(tools: Tools) -> None:
    """At the bound itself, too: whoever may call silence over may do so now, and the two must not both be right."""
    await tools.put(1)
    call = await tools.sent()
    await tools.clock(BOUND_MS)
    async with tools.batch.unchanged():
        assert refused(await tools.complete(call)) == "reject lease_expired (indoubt.bind)"
    assert (await tools.taken(call)).answer.verb is Verb.COMPENSATE


async def test_an_outcome_of_another_generation_is_refused(tools: Tools) -> None:
    """Of fence 2's: what the caller quotes is compared."""
    await tools.put(1)
    call = await tools.sent()
    other = replace(call, answer=replace(call.answer, answer=dict(call.answer.answer) | {"gen": 7}))
    async with tools.batch.unchanged():
        assert (await tools.complete(other)).reason == "stale_gen"
        assert (await tools.send(other)).reason == "stale_gen"
    await tools.complete(call)


# --- silence ----------------------------------------------------------------------------------------------


async def test_a_call_that_may_have_landed_is_in_doubt_up_to_its_bound(tools: Tools) -> None:
    """Nobody calls, nobody undoes; the message stays pending for whoever looks again."""
    await tools.put(1)
    call = await tools.sent()
    await tools.clock(BOUND_MS - 1)
    await tools.batch.taken(call.entry, W1)
    async with tools.batch.unchanged():
        decision = (await tools.claim(call.entry, W1)).answer
    assert (decision.verb, decision.reason) == (Verb.IN_DOUBT, "awaiting_ack")
    (doubt,) = await tools.batch.bus.doubts(tools.batch.name, tools.ref.run)
    assert (doubt.id, doubt.state, doubt.executor) == (call.intent, IntentState.AWAITING_ACK, call.executor)
    assert (await tools.complete(call)).verb is Verb.COMMIT


async def test_past_its_bound_a_call_with_an_inverse_is_undone(tools: Tools) -> None:
    """The undo is an effect with a message of its own. What the slow original says from then on is too late."""
    fan_out = await tools.put(1)
    call = await tools.sent()
    await tools.clock(BOUND_MS)
    answer = (await tools.taken(call)).answer
    assert (answer.verb, answer.answer["undo_id"]) == (Verb.COMPENSATE, f"{call.intent}~undo")
    assert await parts(tools, "tool_claim") == (
        "outbox.recover compensate", "indoubt.recover compensate", "plane.release commit",
    )  # fmt: skip
    assert await tools.messages() == ["0.1.0~undo"]
    assert (await tools.batch.bus.counters(tools.batch.name)).effects_open == 2
    async with tools.batch.unchanged():
        assert (await tools.complete(call)).reason == "already_final"
        assert (await tools.join(fan_out)).reason == "in_flight"
        assert (await tools.claim(call.entry, W1)).answer.reason == "not_owner"
    undo = await tools.claimed()
    assert (await tools.send(undo)).verb is Verb.COMMIT
    assert await parts(tools, "tool_sent") == ("outbox.sent commit", "plane.admit commit")
    await tools.complete(undo)
    assert await parts(tools, "tool_complete") == (
        "outbox.complete commit", "plane.write commit", "plane.release commit",
    )  # fmt: skip
    assert await tools.states() == {"0.1.0": IntentState.COMPENSATED, "0.1.0~undo": IntentState.COMMITTED}
    assert (await tools.join(fan_out)).verb is Verb.COMMIT


async def test_past_its_bound_a_call_without_an_inverse_is_stuck(tools: Tools) -> None:
    """A person must look. The run cannot go on, and says so; the batch does not wait for ever."""
    fan_out = await tools.put(1, "pay")
    call = await tools.sent()
    await tools.clock(BOUND_MS)
    assert refused((await tools.taken(call)).answer) == "reject stuck (run.tool_claim)"
    assert await tools.messages() == []
    counters = await tools.batch.bus.counters(tools.batch.name)
    assert (counters.effects_open, counters.stuck) == (0, 1)
    assert [one.state for one in await tools.batch.bus.doubts(tools.batch.name, tools.ref.run)] == ["stuck"]
    async with tools.batch.unchanged():
        assert refused(await tools.join(fan_out)) == "reject stuck (run.join)"
    await tools.batch.bus.hole(tools.ref, "stuck", "")


@pytest.mark.parametrize("how", ["silent", "failed", "poison"])
async def test_an_undo_that_fares_no_better_leaves_both_stuck(tools: Tools, how: str) -> None:
    """Its own bound passes, or it fails, or it kills its executors. It has no undo, though its tool has an inverse."""
    await tools.put(1)
    call = await tools.sent()
    await tools.clock(BOUND_MS)
    await tools.taken(call)
    undo = await tools.claimed()
    if how == "poison":
        for _ in range(tools.batch.spec.max_deliveries):
            undo = await tools.taken(undo)
        assert undo.answer.reason == "poison"
    else:
        await tools.send(undo)
        if how == "failed":
            await tools.complete(undo, ok=False)
        else:
            await tools.clock(2 * BOUND_MS - 1)
            assert (await tools.taken(undo)).answer.reason == "awaiting_ack"
            await tools.clock(2 * BOUND_MS)
            assert (await tools.taken(undo)).answer.reason == "stuck"
    assert (await tools.states())["0.1.0"] is IntentState.STUCK
    counters = await tools.batch.bus.counters(tools.batch.name)
    assert (counters.effects_open, counters.stuck) == (0, 1)
    assert await tools.messages() == []


async def test_an_undo_runs_after_its_run_has_ended(tools: Tools) -> None:
    """A close waits for it."""
    await tools.put(1)
    call = await tools.sent()
    await tools.batch.bus.hole(tools.ref, "solver_timeout", "")
    await tools.clock(BOUND_MS)
    assert (await tools.taken(call)).answer.verb is Verb.COMPENSATE
    await tools.done()
    assert (await tools.states())["0.1.0"] is IntentState.COMPENSATED


class Outside:
    """A tool that counts what it did: a key commits once; an undone key is refused from then on."""

    def __init__(self) -> None:
        self.commits: list[str] = []
        self.undone: set[str] = set()

    def call(self, intent: str, undo: str | None) -> bool:
        """Whether it did something."""
        if undo is not None:
            self.undone.add(undo)
        elif intent in self.undone:
            return False
        self.commits.append(intent)
        return True


DEATHS = ["before the claim", "before the send", "before the call", "before the answer", "before the outcome"]


@pytest.mark.parametrize("death", DEATHS)
async def test_an_executor_that_dies_leaves_one_effect_or_one_and_its_undo(tools: Tools, death: str) -> None:
    """At each point of its way; and it wakes up later, behind its successor, and goes on where it stood."""
    outside = Outside()
    fan_out = await tools.put(1)

    async def work(call: ToolCall) -> None:
        if call.answer.applied and (await tools.send(call)).verb is Verb.COMMIT:
            did = outside.call(call.intent, call.answer.answer.get("undo"))
            await tools.complete(call, ok=did)

    async def all_else() -> None:
        for entry in await tools.batch.bus.read(Group.TOOLS, W1, [tools.batch.name], 10, 1):
            await work(await tools.claim(entry, W1))

    entry = await tools.delivered()
    at = DEATHS.index(death)
    first = await tools.claim(entry) if at > 0 else None
    if first and at > 1:
        assert (await tools.send(first)).verb is Verb.COMMIT
    if first and at > 2:
        assert outside.call(first.intent, None)
    await tools.clock(BOUND_MS)
    await work(await tools.claim(await tools.batch.taken(entry, W1), W1))
    await all_else()
    # It wakes up.
    if at == 0:
        first = await tools.claim(entry)
    assert first
    if at < 2:
        await work(first)
    else:
        if at == 2:  # licensed long ago, it calls now: the tool refuses a key that was undone
            assert not outside.call(first.intent, None)
        assert not (await tools.complete(first)).applied
    await all_else()

    intent = fan_out.intents[0].id
    done = outside.commits.count(intent)
    if at < 2:
        assert (await tools.states(), done, outside.undone) == ({"0.1.0": IntentState.COMMITTED}, 1, set())
    else:
        assert (await tools.states())["0.1.0"] is IntentState.COMPENSATED
        assert (done, outside.undone) == (0 if at == 2 else 1, {intent})
    assert (await tools.join(fan_out)).verb is Verb.COMMIT


# --- join -------------------------------------------------------------------------------------------------


async def test_a_fan_out_is_joined_when_its_last_effect_has_ended_and_not_before(tools: Tools) -> None:
    """Some have committed, one is queued: the observations enter together or not at all."""
    fan_out = await tools.put(3)
    await tools.done()
    await tools.done(ok=False)
    async with tools.batch.unchanged():
        decision = await tools.join(fan_out)
        assert (decision.verb, decision.reason) == (Verb.IN_DOUBT, "in_flight")
        assert (await tools.batch.bus.seal(tools.ref, tools.head, 1, "answer", "", "")).applied is False
    await tools.done()
    assert (await tools.join(fan_out)).verb is Verb.COMMIT


async def test_a_fan_out_of_three_with_a_late_duplicate_spends_once(server: Target) -> None:
    """A slow twin says its outcome again, before the join and after it; and the join itself is sent twice."""
    async with opened(server.address(), runs=1, limits=LIMITS | {"budget": 100}) as batch:
        await batch.admit()
        tools = await Tools.open(batch)
        fan_out = await tools.put(3, cost=60)
        assert await batch.batch_field("window_tokens") == "60"
        calls = [await tools.sent() for _ in range(3)]
        for call in calls:
            assert (await tools.complete(call, '{"tokens": 7}')).verb is Verb.COMMIT
        async with batch.unchanged():
            assert (await tools.complete(calls[2], '{"tokens": 7}')).verb is Verb.DUPLICATE
        assert (await batch.bus.join(tools.ref, fan_out, "joined")).verb is Verb.COMMIT
        assert await batch.batch_field("window_tokens") == "21"
        async with batch.unchanged():
            assert (await tools.complete(calls[2], '{"tokens": 7}')).verb is Verb.DUPLICATE
            assert (await tools.complete(calls[2], '{"tokens": 9}')).reason == "already_final"
            assert (await batch.bus.join(tools.ref, fan_out, "joined")).verb is Verb.DUPLICATE
            assert (await batch.bus.join(tools.ref, fan_out, "other")).reason == "already_committed"


@pytest.mark.parametrize("said", ['{"tokens": 61}', '{"tokens": "7"}', '{"tokens": -1}', "[1]", "{", '{"tokens": 1.5}'])
async def test_tokens_beyond_the_window_end_it_and_what_is_none_counts_as_nothing(server: Target, said: str) -> None:
    """What a tool spent is what it says itself. An exhausted window is closed for ever: the run ends as a hole."""
    async with opened(server.address(), runs=1, limits=LIMITS | {"budget": 100}) as batch:
        await batch.admit()
        tools = await Tools.open(batch)
        fan_out = await tools.put(1, cost=60)
        await tools.complete(await tools.sent(), said)
        decision = await tools.join(fan_out)
        if "61" in said:
            assert refused(decision) == "reject window_exhausted (join.result)"
            assert (await tools.join(fan_out)).reason == "late"
            await batch.bus.hole(tools.ref, "window_exhausted", "")
            return
        assert decision.verb is Verb.COMMIT
        assert await batch.batch_field("window_tokens") == "0"


async def test_a_window_that_holds_no_tokens_has_none_to_spend(tools: Tools) -> None:
    """An observation that happens to have a field of that name is no bill."""
    fan_out = await tools.put(1)
    await tools.complete(await tools.sent(), '{"tokens": 61}')
    assert (await tools.join(fan_out)).verb is Verb.COMMIT


async def test_a_join_names_all_its_intents_and_no_others(tools: Tools) -> None:
    """The window is the set that was announced."""
    fan_out, other = await tools.put(2), tools.fan_out(1, n=9)
    first, second = fan_out.intents
    await tools.done()
    await tools.done()
    async with tools.batch.unchanged():
        for wrong, reason in (
            (replace(fan_out, intents=[first]), "not_joined"),
            (replace(fan_out, intents=[first, first]), "duplicate_attempt"),
            (replace(fan_out, intents=[first, second, *other.intents]), "unknown_intent"),
            (replace(fan_out, window=other.window), "window_mismatch"),
            (replace(fan_out, digest=other.digest), "intent_mismatch"),
            (replace(fan_out, step=other.step), "unknown_case"),
            (replace(fan_out, seq=2), "seq_gap"),
            (replace(fan_out, parent=Digest("f" * 64)), "forged_prefix"),
        ):
            assert (await tools.join(wrong)).reason == reason
    assert (await tools.join(fan_out)).verb is Verb.COMMIT


async def test_a_holder_that_ended_joins_nothing(tools: Tools) -> None:
    """Sealed; and one of another run's lease."""
    fan_out = tools.fan_out(1)
    await tools.batch.bus.seal(tools.ref, tools.head, 1, "answer", "", "")
    async with tools.batch.unchanged():
        assert (await tools.join(fan_out)).reason == "sealed"
        foreign = replace(tools.ref, run=RunId("c1#1"))
        named = replace(fan_out, step="c1#1~0.1", intents=[replace(fan_out.intents[0], id="c1#1~0.1.0")])
        assert (await tools.batch.bus.put_tools(foreign, named)).reason == "run_mismatch"
        assert (await tools.batch.bus.put_tools(replace(tools.ref, conversation=1), fan_out)).reason == "schema"


# --- messages that were lost ------------------------------------------------------------------------------


async def test_an_effect_whose_message_was_lost_is_emitted_anew(tools: Tools) -> None:
    """The group was recreated at the end of its stream, or somebody trimmed it. The old one, come back, is refused."""
    await tools.put(1)
    old = await tools.delivered()
    (name,) = [one.id for one in await tools.batch.bus.effects(tools.batch.name, tools.ref.run)]
    stream = tools.batch.keys.stream("tools")
    await tools.batch.wire.call("XGROUP", "DESTROY", stream, "worker")
    await tools.batch.wire.call("XGROUP", "CREATE", stream, "worker", "$")
    decision = await tools.batch.bus.tool_requeue(tools.batch.name, tools.ref.run, name)
    assert decision.verb is Verb.COMMIT
    assert await tools.messages() == ["0.1.0"]
    new = await tools.delivered()
    assert new.id == decision.answer["entry"] != old.id
    async with tools.batch.unchanged():
        assert (await tools.claim(old)).answer.reason == "not_owner"
    call = await tools.claimed(new)
    await tools.send(call)
    assert (await tools.complete(call)).verb is Verb.COMMIT


@pytest.mark.parametrize("delivered", [False, True], ids=["waiting", "pending"])
async def test_a_message_that_will_be_delivered_is_not_emitted_again(tools: Tools, delivered: bool) -> None:
    """Two planners look, or one that is too eager: a second message would be refused, but costs a delivery."""
    await tools.put(2)
    if delivered:
        await tools.delivered()
        await tools.delivered()
    async with tools.batch.unchanged():
        for i in range(2):
            intent = f"{tools.ref.run}~0.1.{i}"
            decision = await tools.batch.bus.tool_requeue(tools.batch.name, tools.ref.run, intent)
            assert decision.reason == "still_known"


async def test_a_message_is_emitted_anew_once_however_many_look(tools: Tools) -> None:
    """The second names the entry that was lost, and finds another in the row."""
    await tools.put(1)
    lost = await tools.delivered()
    await tools.batch.wire.call("XACK", tools.batch.keys.stream("tools"), "worker", lost.id)
    intent = lost.fields["intent"]

    async def requeue() -> Decision:
        return await tools.batch.bus._step(
            "tool_requeue", tools.batch.name, run=tools.ref.run, intent_id=intent, entry=lost.id
        )

    first = await requeue()
    async with tools.batch.unchanged():
        again = await requeue()
    assert [first.verb, again.verb] == [Verb.COMMIT, Verb.DUPLICATE]
    await tools.done()
    async with tools.batch.unchanged():
        decision = await tools.batch.bus.tool_requeue(tools.batch.name, tools.ref.run, intent)
        assert decision.reason == "ended"
        assert (await requeue()).reason == "ended"


# --- writes -----------------------------------------------------------------------------------------------


@pytest.fixture
async def writer(server: Target) -> AsyncIterator[Tools]:
    """A run with a workspace that its holder's beats keep alive."""
    async with opened(server.address(), runs=1, limits=LIMITS | {"heartbeat_ms": BOUND_MS}) as batch:
        await batch.admit()
        await batch.wire.call("HSET", batch.keys.batch_row, "clock", 1_000_000)
        yield await Tools.open(batch)


BYTES = Digest("b" * 64)


async def test_a_write_gets_a_receipt_and_is_joined_with_the_event_that_tells_of_it(writer: Tools) -> None:
    """Sent again, each gets its first answer."""
    bus, ref, step = writer.batch.bus, writer.ref, f"{writer.ref.run}~0.1.w"
    assert ref.epoch == 1
    written = await bus.write(ref, step, "a.txt", BYTES, "r1")
    assert (written.verb, written.answer) == (Verb.COMMIT, {"receipt": "r1", "log_index": 1})
    told = [Receipt(step, "r1")]
    async with writer.batch.unchanged():
        again = await bus.write(ref, step, "a.txt", BYTES, "r1")
        assert (again.verb, again.answer) == (Verb.DUPLICATE, written.answer)
        assert (await bus.write(ref, step, "a.txt", Digest("c" * 64), "r2")).reason == "step_conflict"
        assert (await bus.write(ref, "c0#1~1.1.w", "a.txt", BYTES, "r3")).reason == "schema"
        assert (await bus.append(ref, writer.head, 1, ["wrote"], [Receipt(step, "r2")])).reason == "unknown_receipt"
        assert (await bus.append(ref, writer.head, 1, ["wrote"], [Receipt(step, "")])).reason == "schema"
        assert (await bus.append(ref, writer.head, 2, ["wrote"], told)).reason == "seq_gap"
    appended = await bus.append(ref, writer.head, 1, ["wrote"], told)
    assert appended.verb is Verb.COMMIT
    async with writer.batch.unchanged():
        again = await bus.append(ref, writer.head, 1, ["wrote"], told)
        assert (again.verb, again.answer) == (Verb.DUPLICATE, appended.answer)


async def test_a_write_on_a_disk_that_is_gone_is_not_told_of(writer: Tools) -> None:
    """The holder was silent for too long; its successor's disk is another one. The late receipt decides nothing."""
    bus, ref, step = writer.batch.bus, writer.ref, f"{writer.ref.run}~0.1.w"
    await bus.write(ref, step, "a.txt", BYTES, "r1")
    later = await writer.succeeded()
    assert later.ref.epoch == 2
    async with writer.batch.unchanged():
        assert (await bus.append(ref, writer.head, 1, ["wrote"], [Receipt(step, "r1")])).reason == "stale_gen"
        assert (await bus.write(ref, step, "a.txt", BYTES, "r2")).reason == "stale_gen"
    decision = await bus.append(later.ref, later.head, 1, ["wrote"], [Receipt(step, "r1")])
    assert refused(decision) == "reject stale_epoch (sandbox.join)"
    assert await bus.transcript(writer.batch.name, writer.ref.run) == []
    assert (await bus.write(later.ref, step, "a.txt", BYTES, "r3")).verb is Verb.COMMIT
    assert (await bus.append(later.ref, later.head, 1, ["wrote"], [Receipt(step, "r3")])).verb is Verb.COMMIT


async def test_a_fan_out_joins_the_writes_that_it_made(writer: Tools) -> None:
    """A tool that runs at the holder writes to its disk."""
    step = f"{writer.ref.run}~0.2.w"
    fan_out = await writer.put(1)
    await writer.done()
    await writer.batch.bus.write(writer.ref, step, "a.txt", BYTES, "r1")
    async with writer.batch.unchanged():
        decision = await writer.batch.bus.join(writer.ref, fan_out, "joined", [Receipt(step, "other")])
        assert refused(decision) == "reject unknown_receipt (sandbox.join)"
    joined = await writer.batch.bus.join(writer.ref, fan_out, "joined", [Receipt(step, "r1")])
    assert joined.verb is Verb.COMMIT
    assert (await writer.batch.row(writer.ref.run))[f"b.step:{step}"].startswith("committed")


@pytest.mark.parametrize(("limits", "reason"), [({}, "stale_gen"), ({"compute_retries": 1}, "stale_lease")])
async def test_a_lease_that_was_never_granted_is_refused_by_the_fence_that_is_first(
    server: Target, limits: dict[str, int], reason: str
) -> None:
    """Where a batch counts its compute retries that is fence 4, else 7."""
    async with opened(server.address(), runs=1, limits=LIMITS | limits) as batch:
        await batch.admit()
        tools = await Tools.open(batch)
        other = replace(tools.ref, lease_id=LeaseId("L0"), gen=Gen(7))
        async with batch.unchanged():
            assert (await batch.bus.put_tools(other, tools.fan_out(1))).reason == reason
            assert (await batch.bus.write(other, f"{other.run}~0.1.w", "a", BYTES, "r")).reason == reason


async def test_a_claim_of_what_is_no_entry_is_refused(tools: Tools) -> None:
    """Checked before the server is asked, which would raise."""
    await tools.put(1)
    entry = replace(await tools.delivered(), id=EntryId("none"))
    async with tools.batch.unchanged():
        assert refused((await tools.claim(entry)).answer) == "reject schema (run.tool_claim)"
