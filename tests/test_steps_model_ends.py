"""How a model call ends when its answer is not bound: dropped, resolved as lost, swept; and the judge's calls.

As in `tests.test_steps_model`, every test ends with the question whether rows, desks, ledger and history tell one
story, and whether the reference models decide what was recorded. Here a run has lost its worker, or it its answer.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from bus.chain import EMPTY_HEAD, next_head
from bus.port import Chunk, ModelCall
from bus.target import Target
from bus.types import Digest, Verb
from tests.batches import Batch, Held, opened, refused
from tests.model_calls import (
    LIMITS,
    LOST,
    answered,
    asked,
    at,
    check_calls,
    desk_of,
    figures,
    judged,
    opened_call,
    succeeded,
)

MOVES = ("open", "flush", "flush", "bind", "bind", "bind", "drop", "drop", "resolve", "claim", "sweep")


@pytest.fixture
async def batch(server: Target) -> AsyncIterator[Batch]:
    """Three runs, admitted; two places at the candidate's endpoint, one at the judge's; 1,000 tokens for all."""
    async with opened(server.address(), limits=LIMITS, reclaim_ms=1_000) as one:
        await one.admit()
        yield one
        await check_calls(one)


# --- drop_call --------------------------------------------------------------------------------------------


async def test_a_cancelled_call_frees_its_place_and_is_settled_at_what_arrived(batch: Batch) -> None:
    """The connection is closed: nothing more comes, and nothing stays reserved. What was guessed is marked."""
    held = await batch.claimed()
    call, _ = await opened_call(batch, held)
    await batch.bus.flush(held.ref, call, [Chunk(1, 10)])
    rest = [Chunk(2, 20, durable=False)]
    decision = await batch.bus.drop_call(held.ref, call, rest, cancelled=True, estimated=20)
    assert decision.verb is Verb.COMMIT
    assert await desk_of(batch) == {}
    assert await figures(batch) == {"spent": 30, "durable": 10, "estimated": 20}
    async with batch.unchanged():
        again = await batch.bus.drop_call(held.ref, call, rest, cancelled=True, estimated=20)
        assert again.verb is Verb.DUPLICATE


@pytest.mark.parametrize(("billed", "spent"), [(45, 45), (10, 10), (3, 10)])
async def test_a_cancelled_call_is_settled_at_the_endpoints_figure(batch: Batch, billed: int, spent: int) -> None:
    """It is the authority on what it sends a bill for; but what was had and is durable was not free."""
    held = await batch.claimed()
    call, _ = await opened_call(batch, held)
    chunks = [Chunk(1, 10), Chunk(2, 5, durable=False)]
    assert (await batch.bus.drop_call(held.ref, call, chunks, cancelled=True, billed=billed)).verb is Verb.COMMIT
    assert await figures(batch) == {"spent": spent, "durable": 10}
    async with batch.unchanged():
        again = await batch.bus.drop_call(held.ref, call, chunks, cancelled=True, billed=billed)
        assert again.verb is Verb.DUPLICATE
        other = await batch.bus.drop_call(held.ref, call, chunks, cancelled=True, billed=50)
        assert refused(other) == "reject double_release (admission.release)"
        late = await batch.bus.flush(held.ref, call, [Chunk(3, 100)])
        assert refused(late) == "reject attempt_closed (ledger.chunk)"
        seen = batch.keys.run(held.ref.run), f"l.c:{call.step}#{call.attempt}:3"
        assert await batch.wire.call("HDEL", *seen) == 1


async def test_a_call_that_may_still_be_on_its_way_keeps_its_place(batch: Batch) -> None:
    """Nobody could close its connection. The step may be asked anew beside it, within the desk's bound."""
    held = await batch.claimed()
    call, _ = await opened_call(batch, held)
    assert (await batch.bus.drop_call(held.ref, call, [Chunk(1, 10)], cancelled=False)).verb is Verb.COMMIT
    assert await desk_of(batch) == {call.desk_lease: "expired"}
    assert await figures(batch) == {"spent": 10, "durable": 10, "reserved": 90}
    async with batch.unchanged():
        assert (await batch.bus.drop_call(held.ref, call, cancelled=False)).verb is Verb.DUPLICATE
    await opened_call(batch, held)
    async with batch.unchanged():
        assert refused(await batch.bus.open_call(held.ref, asked(held.ref))).startswith("reject step_in_flight")
    assert (await batch.bus.drop_call(held.ref, call, cancelled=True)).verb is Verb.COMMIT
    assert await figures(batch) == {"spent": 10, "durable": 10, "reserved": 100}


async def test_who_lost_the_run_still_frees_what_it_opened(batch: Batch) -> None:
    """The claim of its successor has fenced the place. Its own random id is all that is asked for."""
    held = await batch.claimed()
    call, _ = await opened_call(batch, held)
    await succeeded(batch, held)
    assert await desk_of(batch) == {call.desk_lease: "expired"}
    assert (await batch.bus.drop_call(held.ref, call, [Chunk(1, 10)], cancelled=True)).verb is Verb.COMMIT
    assert await desk_of(batch) == {}
    assert await figures(batch) == {"spent": 10, "durable": 10}


async def test_a_call_that_was_bound_cannot_be_dropped(batch: Batch) -> None:
    """The answer to the binding was lost and its sender gave up: what is bound stays bound, and is not settled anew."""
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held)
    await batch.bus.bind_call(held.ref, call, desk_gen, answered())
    async with batch.unchanged():
        for cancelled, refusal in (
            (True, "double_release (admission.release)"),
            (False, "not_live (admission.expire)"),
        ):
            decision = await batch.bus.drop_call(held.ref, call, cancelled=cancelled)
            assert refused(decision) == f"reject {refusal}"


async def test_an_announcement_that_arrives_behind_its_own_end_is_found_and_dropped(batch: Batch) -> None:
    """Cancelled before its answer came, it was dropped in vain; then a late copy of it was granted to nobody."""
    held = await batch.claimed()
    call = asked(held.ref)
    async with batch.unchanged():
        decision = await batch.bus.drop_call(held.ref, call, cancelled=True)
        assert refused(decision) == "reject unknown_lease (admission.release)"
    await batch.bus.open_call(held.ref, call)
    second = asked(held.ref)
    told = (await batch.bus.open_call(held.ref, second)).answer
    named = replace(second, request_id=told["request"], attempt=told["attempt"], desk_lease=told["desk_lease"])
    assert (await batch.bus.drop_call(held.ref, named, cancelled=True)).verb is Verb.COMMIT
    assert (await batch.bus.open_call(held.ref, second)).verb is Verb.COMMIT


async def test_another_attempts_place_is_not_given_back(batch: Batch) -> None:
    """Two calls mixed up: the one that is named would be settled, and the place of the other be free."""
    first, second = await batch.claimed(), await batch.claimed()
    call, _ = await opened_call(batch, first)
    other, _ = await opened_call(batch, second)
    async with batch.unchanged():
        mixed = replace(call, desk_lease=other.desk_lease)
        assert refused(await batch.bus.drop_call(first.ref, mixed, cancelled=True)) == "reject schema (run.drop_call)"
        mixed = replace(call, attempt=other.attempt)
        assert refused(await batch.bus.drop_call(first.ref, mixed, cancelled=True)) == "reject schema (run.drop_call)"


# --- resolve ----------------------------------------------------------------------------------------------


async def test_the_next_holder_resolves_what_was_announced_and_asks_anew(batch: Batch) -> None:
    """The answer will never come, since only a dead lease could have bound it. Its place says so."""
    held = await batch.claimed()
    await opened_call(batch, held)
    second = await succeeded(batch, held)
    assert second.decision.answer["unresolved"] == [1]
    async with batch.unchanged():
        decision = await batch.bus.open_call(second.ref, asked(second.ref))
        assert (decision.verb, decision.reason) == (Verb.IN_DOUBT, "dangling")
    resolved = await batch.bus.resolve(second.ref, EMPTY_HEAD, 1, LOST)
    assert resolved.answer == {"head": next_head(EMPTY_HEAD, LOST), "length": 1}
    assert not [field for field in await batch.row(held.ref.run) if field.startswith(("t.i:", "m.i:"))]
    async with batch.unchanged():
        again = await batch.bus.resolve(second.ref, EMPTY_HEAD, 1, LOST)
        assert (again.verb, again.answer) == (Verb.DUPLICATE, resolved.answer)
    call, desk_gen = await opened_call(batch, second, parent=resolved.answer["head"], seq=2)
    assert (await batch.bus.bind_call(second.ref, call, desk_gen, answered())).verb is Verb.COMMIT


async def test_a_holder_resolves_its_own_call_once_it_has_dropped_it(batch: Batch) -> None:
    """Its solver gave the question up. Until it is dropped its answer may come; afterwards the run can be sealed."""
    held = await batch.claimed()
    call, _ = await opened_call(batch, held)
    async with batch.unchanged():
        decision = await batch.bus.resolve(held.ref, EMPTY_HEAD, 1, LOST)
        assert refused(decision) == "reject step_in_flight (run.resolve)"
        assert decision.answer["desk_lease"] == call.desk_lease
    await batch.bus.drop_call(held.ref, call, cancelled=True)
    head = (await batch.bus.resolve(held.ref, EMPTY_HEAD, 1, LOST)).answer["head"]
    assert (await batch.bus.seal(held.ref, head, 2, "answer", "", "")).verb is Verb.COMMIT


async def test_what_is_not_an_announced_call_is_not_resolved(batch: Batch) -> None:
    """Nothing stands there, or a fan-out does: its effects are known to others, and a `lost` would hide them."""
    held = await batch.claimed()
    async with batch.unchanged():
        decision = await batch.bus.resolve(held.ref, EMPTY_HEAD, 1, LOST)
        assert refused(decision) == "reject intent_mismatch (transcript.append)"
    row = batch.keys.run(held.ref.run)
    await batch.wire.call("HSET", row, "t.i:1", "0 fan-out", "m.i:1", "another c0#1~0.1")
    async with batch.unchanged():
        assert not (await batch.bus.resolve(held.ref, EMPTY_HEAD, 1, LOST)).applied
    await batch.wire.call("HDEL", row, "t.i:1", "m.i:1")


async def test_who_lost_the_run_resolves_nothing(batch: Batch) -> None:
    """Its own call among them: the next holder decides what stands there."""
    held = await batch.claimed()
    await opened_call(batch, held)
    second = await succeeded(batch, held)
    async with batch.unchanged():
        decision = await batch.bus.resolve(held.ref, EMPTY_HEAD, 1, LOST)
        assert refused(decision) == "reject stale_gen (transcript.append)"
    assert [letter["payload"] for letter in await batch.dead()] == [LOST]
    head = Digest((await batch.bus.resolve(second.ref, EMPTY_HEAD, 1, LOST)).answer["head"])
    await opened_call(batch, second, parent=head, seq=2)
    async with batch.unchanged():
        decision = await batch.bus.resolve(held.ref, head, 2, LOST)
        assert refused(decision) == "reject stale_gen (transcript.append)"


# --- sweep, and who died where ----------------------------------------------------------------------------


async def test_a_dead_workers_place_and_charge_are_freed_after_the_reclaim_time(server: Target) -> None:
    """One place. The successor waits for it: the dead one's request may still be spending, and is charged in full."""
    async with opened(server.address(), runs=1, limits={**LIMITS, "model_slots": 1}, reclaim_ms=1_000) as batch:
        await batch.admit()
        await at(batch, 5_000)
        held = await batch.claimed()
        call, _ = await opened_call(batch, held)
        await batch.bus.flush(held.ref, call, [Chunk(1, 10)])
        second = await succeeded(batch, held)
        head = (await batch.bus.resolve(second.ref, EMPTY_HEAD, 1, LOST)).answer["head"]
        anew = asked(second.ref, parent=head, seq=2)
        for now, freed in ((5_999, 0), (6_000, 1)):
            async with batch.unchanged():
                assert refused(await batch.bus.open_call(second.ref, anew)) == "reject bound_full (admission.acquire)"
            assert await figures(batch) == {"spent": 10, "durable": 10, "reserved": 90}
            await at(batch, now)
            assert (await batch.bus.sweep(batch.name, 50, "model")).answer == {"freed": freed}
        assert await figures(batch) == {"spent": 100, "durable": 10, "estimated": 90}
        assert (await batch.bus.open_call(second.ref, anew)).verb is Verb.COMMIT
        assert refused(await batch.bus.drop_call(held.ref, call, cancelled=True, billed=20)) == (
            "reject double_release (admission.release)"
        )
        await check_calls(batch)


async def test_a_sweep_settles_several_calls_of_one_run(batch: Batch) -> None:
    """It died twice with a call under way. One of them had spent more than it was admitted for."""
    await at(batch, 5_000)
    held = await batch.claimed()
    call, _ = await opened_call(batch, held)
    await batch.bus.flush(held.ref, call, [Chunk(1, 130, durable=False)])
    second = await succeeded(batch, held)
    head = (await batch.bus.resolve(second.ref, EMPTY_HEAD, 1, LOST)).answer["head"]
    await opened_call(batch, second, parent=head, seq=2, estimate=50)
    await succeeded(batch, held)
    assert set((await desk_of(batch)).values()) == {"expired"}
    await at(batch, 6_000)
    assert (await batch.bus.sweep(batch.name, 50, "model")).answer == {"freed": 2}
    assert await figures(batch) == {"spent": 180, "estimated": 50}
    async with batch.unchanged():
        assert (await batch.bus.sweep(batch.name, 50, "model")).answer == {"freed": 0}


async def test_a_call_that_the_endpoint_has_the_last_word_on_is_swept_at_once_and_nothing_is_guessed(
    batch: Batch,
) -> None:
    """Two holders are gone. Of one request it is known what it cost; the other one may still be on its way."""
    await at(batch, 5_000)
    held = await batch.claimed()
    call, _ = await opened_call(batch, held)
    await batch.bus.flush(held.ref, call, [Chunk(1, 30, durable=False)])
    second = await succeeded(batch, held)
    head = (await batch.bus.resolve(second.ref, EMPTY_HEAD, 1, LOST)).answer["head"]
    other, _ = await opened_call(batch, second, parent=head, seq=2, estimate=50)
    await succeeded(batch, held)
    expired = {one.desk_lease: one.request_id for one in await batch.bus.expired_calls(batch.name, "model")}
    assert expired == {one.desk_lease: one.request_id for one in (call, other)}
    swept = await batch.bus.sweep(batch.name, 50, "model", {call.desk_lease: 42})
    assert swept.answer == {"freed": 1}
    assert await figures(batch) == {"spent": 42, "reserved": 50}
    assert [one.desk_lease for one in await batch.bus.expired_calls(batch.name, "model")] == [other.desk_lease]
    await at(batch, 6_000)
    assert (await batch.bus.sweep(batch.name, 50, "model", {other.desk_lease: 0})).answer == {"freed": 1}
    assert await figures(batch) == {"spent": 42}
    await check_calls(batch)


async def test_a_call_whose_answer_had_ended_is_swept_at_what_it_cost(batch: Batch) -> None:
    """Its last chunk had come when it was found wanting: there was nothing more to spend, and nothing to guess."""
    await at(batch, 5_000)
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held)
    await batch.bus.bind_call(held.ref, call, desk_gen, answered("hello", [Chunk(1, 5, durable=False)]))
    await batch.bus.drop_call(held.ref, call, cancelled=False)
    await at(batch, 6_000)
    assert (await batch.bus.sweep(batch.name, 50, "model")).answer == {"freed": 1}
    assert await figures(batch) == {"spent": 5}
    (record,) = await batch.history("run.sweep")
    assert record.verbs == ("admission.reclaim commit", "ledger.reconcile commit")


async def test_a_live_call_is_not_swept(batch: Batch) -> None:
    """However long it takes: its holder waits for it, and closes it."""
    await at(batch, 5_000)
    held = await batch.claimed()
    await opened_call(batch, held)
    await at(batch, 10**9)
    async with batch.unchanged():
        assert (await batch.bus.sweep(batch.name, 50, "model")).answer == {"freed": 0}


async def test_a_sweep_that_is_sent_again_finds_nothing(batch: Batch) -> None:
    """The same leases in a late copy of the command: what is given back is not given back twice."""
    await at(batch, 5_000)
    held = await batch.claimed()
    call, _ = await opened_call(batch, held)
    await batch.bus.drop_call(held.ref, call, cancelled=False)
    await at(batch, 6_000)
    keys = {"rows": [batch.keys.run(held.ref.run)], "desk_any": batch.keys.desk("model")}
    items = {"items": [call.desk_lease, call.step, "0", ""]}
    for freed in (1, 0):
        decision = await batch.bus._step("sweep", batch.name, extra_keys=keys, extra_argv=items, desk="model", leases=1)
        assert decision.answer == {"freed": freed}
    assert await figures(batch) == {"spent": 100, "estimated": 100}


@pytest.mark.parametrize("end", ["hole", "yield"])
async def test_what_a_run_left_when_it_ended_is_swept(batch: Batch, end: str) -> None:
    """The hole does not wait for the request, nor the hand-back; the desk and the budget get theirs back."""
    await at(batch, 5_000)
    held = await batch.claimed()
    await opened_call(batch, held)
    await (batch.bus.hole(held.ref, "solver_error", "") if end == "hole" else batch.bus.give_back(held.ref))
    assert set((await desk_of(batch)).values()) == {"expired"}
    await at(batch, 6_000)
    assert (await batch.bus.sweep(batch.name, 50, "model")).answer == {"freed": 1}
    assert await figures(batch) == {"spent": 100, "estimated": 100}


# --- the judge's calls ------------------------------------------------------------------------------------


async def test_a_judges_call_is_of_the_same_budget_at_a_desk_of_its_own(batch: Batch) -> None:
    """It stands in no transcript, and 4 and 7 belong to the worker; the ledger and the desk know it."""
    await batch.sealed()
    scoring = await batch.scoring()
    call = judged(scoring.ref)
    decision = await batch.bus.open_judge(scoring.ref, call)
    assert (decision.verb, decision.answer) == (Verb.COMMIT, {"desk_gen": 1})
    assert await desk_of(batch, "judge") == {call.desk_lease: "live"}
    assert await figures(batch) == {"reserved": 100}
    bound = await batch.bus.bind_judge(scoring.ref, call, 1, answered())
    assert bound.verb is Verb.COMMIT
    assert await figures(batch) == {"spent": 30, "durable": 30}
    async with batch.unchanged():
        assert (await batch.bus.bind_judge(scoring.ref, call, 1, answered())).verb is Verb.DUPLICATE
        assert (await batch.bus.open_judge(scoring.ref, call)).answer == {"desk_gen": 1}
        assert refused(await batch.bus.open_judge(scoring.ref, judged(scoring.ref))).startswith("reject step_committed")
    assert (await batch.bus.score(scoring.ref, scoring.judgement)).verb is Verb.COMMIT


async def test_a_judges_call_is_refused_for_what_a_workers_is(batch: Batch) -> None:
    """Sent again, a second one beside it, a full desk, a budget that is gone, another epoch's name."""
    await batch.sealed()
    await batch.sealed()
    first, second = await batch.scoring(), await batch.scoring()
    call = judged(first.ref)
    await batch.bus.open_judge(first.ref, call)
    async with batch.unchanged():
        assert (await batch.bus.open_judge(first.ref, call)).verb is Verb.DUPLICATE
        beside = await batch.bus.open_judge(first.ref, judged(first.ref))
        assert (beside.reason, beside.answer["request"]) == ("step_in_flight", call.request_id)
        assert (await batch.bus.open_judge(second.ref, judged(second.ref))).reason == "bound_full"
        foreign = replace(judged(second.ref), step=f"{second.ref.run}~j2.1")
        assert refused(await batch.bus.open_judge(second.ref, foreign)) == "reject schema (run.open_judge)"
    await batch.bus.drop_call(first.ref, call, cancelled=True)
    decision = await batch.bus.open_judge(second.ref, judged(second.ref, estimate=1_001))
    assert (decision.reason, decision.answer) == ("over_budget", {"spent": 0, "reserved": 0})


async def test_a_judges_answer_that_is_none_frees_its_place(batch: Batch) -> None:
    """The scorer asks again, or gives up: it counts its own retries."""
    await batch.sealed()
    scoring = await batch.scoring()
    call = judged(scoring.ref)
    await batch.bus.open_judge(scoring.ref, call)
    corrupt = answered("", [Chunk(1, 10)], ok=False)
    assert str(await batch.bus.bind_judge(scoring.ref, call, 1, corrupt)) == "replay payload_corrupt (run.bind_judge)"
    assert await desk_of(batch, "judge") == {}
    async with batch.unchanged():
        assert (await batch.bus.bind_judge(scoring.ref, call, 1, corrupt)).verb is Verb.REPLAY
    second = judged(scoring.ref)
    decision = await batch.bus.open_judge(scoring.ref, second)
    reply = answered("yes")
    assert (await batch.bus.bind_judge(scoring.ref, second, decision.answer["desk_gen"], reply)).verb is Verb.COMMIT


@pytest.mark.parametrize("ok", [True, False])
async def test_what_a_judges_answers_cost_was_guessed_at_is_counted_once(batch: Batch, ok: bool) -> None:
    """As the candidate's."""
    await batch.sealed()
    scoring = await batch.scoring()
    call = judged(scoring.ref)
    await batch.bus.open_judge(scoring.ref, call)
    reply = replace(answered("x", [Chunk(1, 10)], ok=ok), estimated=7)
    await batch.bus.bind_judge(scoring.ref, call, 1, reply)
    assert await figures(batch) == {"spent": 10, "durable": 10, "estimated": 7}
    async with batch.unchanged():
        await batch.bus.bind_judge(scoring.ref, call, 1, reply)


async def test_a_guess_that_was_billed_before_is_not_counted_by_the_drop(batch: Batch) -> None:
    """Its holder was cancelled while the answer was presented, and does not know how far that came."""
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held)
    reply = replace(answered("x", [Chunk(2, 20)]), estimated=15)
    assert (await batch.bus.bind_call(held.ref, call, desk_gen, reply)).reason == "missing_chunks"
    await batch.bus.drop_call(held.ref, call, reply.chunks, cancelled=True, estimated=15)
    assert await figures(batch) == {"spent": 20, "durable": 20, "estimated": 15}


async def test_a_scorer_that_was_succeeded_pays_and_binds_nothing(batch: Batch) -> None:
    """The next epoch judges under names of its own; the old one's place is swept."""
    await at(batch, 5_000)
    await batch.sealed()
    scoring = await batch.scoring()
    call = judged(scoring.ref)
    await batch.bus.open_judge(scoring.ref, call)
    later = await batch.scoring(entry=scoring.entry)
    decision = await batch.bus.bind_judge(scoring.ref, call, 1, answered())
    assert refused(decision) == "reject stale_lease (run.bind_judge)"
    assert (await figures(batch))["spent"] == 30
    assert (
        refused(await batch.bus.open_judge(scoring.ref, judged(scoring.ref))) == "reject stale_lease (run.open_judge)"
    )
    assert await desk_of(batch, "judge") == {call.desk_lease: "expired"}
    await at(batch, 6_000)
    assert (await batch.bus.sweep(batch.name, 50, "judge")).answer == {"freed": 1}
    assert (await batch.bus.open_judge(later.ref, judged(later.ref))).verb is Verb.COMMIT


async def test_of_two_answers_to_a_judges_question_one_counts(server: Target) -> None:
    """It was silent too long, and asked again; the first answer comes behind the second, is paid for and set aside."""
    async with opened(server.address(), runs=1, limits={**LIMITS, "judge_slots": 2}) as batch:
        await batch.admit()
        await batch.sealed()
        scoring = await batch.scoring()
        first, second = judged(scoring.ref), judged(scoring.ref)
        first_gen = (await batch.bus.open_judge(scoring.ref, first)).answer["desk_gen"]
        await batch.bus.drop_call(scoring.ref, first, cancelled=False)
        second_gen = (await batch.bus.open_judge(scoring.ref, second)).answer["desk_gen"]
        assert (await batch.bus.bind_judge(scoring.ref, second, second_gen, answered())).verb is Verb.COMMIT
        late = await batch.bus.bind_judge(scoring.ref, first, first_gen, answered("other", [Chunk(1, 7)]))
        assert refused(late) == "reject already_committed (ledger.done)"
        assert (await batch.bus.drop_call(scoring.ref, first, cancelled=True)).verb is Verb.COMMIT
        assert (await batch.history("run.drop_call"))[-1].verbs == (
            "admission.release commit",
            "ledger.reconcile commit",
        )
        assert await figures(batch) == {"spent": 37, "durable": 37}
        assert await desk_of(batch, "judge") == {}
        async with batch.unchanged():
            other = await batch.bus.bind_judge(scoring.ref, second, second_gen, answered("other"))
            assert refused(other) == "reject stale_gen (admission.apply)"
        await check_calls(batch)


async def test_a_judges_call_under_a_wrong_name_is_refused(batch: Batch) -> None:
    """The candidate's desk, a step of the candidate's, another call's attempt, an answer that is empty."""
    await batch.sealed()
    scoring = await batch.scoring()
    call = judged(scoring.ref)
    desk_gen = (await batch.bus.open_judge(scoring.ref, call)).answer["desk_gen"]
    async with batch.unchanged():
        step = f"{scoring.ref.run}~0.1"
        for another in (replace(judged(scoring.ref), desk="model"), replace(judged(scoring.ref), step=step)):
            assert refused(await batch.bus.open_judge(scoring.ref, another)) == "reject schema (run.open_judge)"
        for mixed, reply in (
            (call, answered(chunks=[])),
            (replace(call, desk="model"), answered()),
            (replace(call, step=step), answered()),
            (replace(call, attempt=10**6), replace(answered(chunks=[]), last_seq=1)),
            (replace(call, request_id="another"), replace(answered(chunks=[]), last_seq=1)),
        ):
            decision = await batch.bus.bind_judge(scoring.ref, mixed, desk_gen, reply)
            assert refused(decision) == "reject schema (run.bind_judge)"


# --- any order --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_the_order_every_place_and_every_token_is_accounted_for(server: Target, seed: int) -> None:
    """Two workers take the run from each other; each command may be sent again, late, by who has lost it.

    What is answered is another test's matter. Here: at every end the books are balanced, the budget holds as far as it
    was reserved, and once nobody holds anything the desk is empty and nothing is reserved.
    """
    dice = random.Random(seed)
    limits = {**LIMITS, "compute_retries": 99, "model_retries": 9, "budget": 2_000}
    async with opened(server.address(), runs=1, limits=limits, max_deliveries=99) as batch:
        await batch.admit()
        held = await batch.claimed()
        holders = [held]
        calls: list[tuple[Held, ModelCall, int]] = []
        for now in range(80):
            await at(batch, 10_000 * now)
            holder = holders[-1] if dice.random() < 0.8 else dice.choice(holders)
            parent, length = await chain_of(batch, holder)
            if not calls or dice.random() < 0.3:
                call = asked(holder.ref, n=length + 1, parent=parent, seq=length + 1, estimate=60)
                decision = await batch.bus.open_call(holder.ref, call)
                if decision.verb is Verb.COMMIT or dice.random() < 0.1:
                    calls.append((holder, call, decision.answer.get("desk_gen", 0)))
                    continue
            owner, call, desk_gen = dice.choice(calls[-3:] or [(holder, asked(holder.ref), 0)])
            chunks = [Chunk(n, 10, dice.random() < 0.95) for n in (1, 2, 3) if dice.random() < 0.8]
            match dice.choice(MOVES):
                case "open":
                    await batch.bus.open_call(owner.ref, call)
                case "flush":
                    await batch.bus.flush(owner.ref, call, chunks)
                case "bind":
                    reply = replace(answered("hello", chunks, ok=dice.random() < 0.8), last_seq=3)
                    await batch.bus.bind_call(owner.ref, call, desk_gen, reply)
                case "drop":
                    await batch.bus.drop_call(owner.ref, call, chunks, cancelled=dice.random() < 0.6)
                case "resolve":
                    await batch.bus.resolve(holder.ref, Digest(parent), length + 1, LOST)
                case "claim":
                    holders.append(await succeeded(batch, held))
                case "sweep":
                    await batch.bus.sweep(batch.name, 50, "model")
            if now % 20 == 19:
                await check_calls(batch)
        await batch.end(held.ref.run)
        await at(batch, 10**9)
        await batch.bus.sweep(batch.name, 50, "model")
        assert await desk_of(batch) == {}
        assert (await figures(batch)).get("reserved", 0) == 0
        await check_calls(batch)


async def chain_of(batch: Batch, holder: Held) -> tuple[str, int]:
    """Head and length of the run's transcript."""
    (row,) = await batch.bus.rows(batch.name, [holder.ref.run])
    return row.head, row.length
