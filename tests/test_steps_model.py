"""The steps of model calls on a real server: announced, paid for, bound or given up; and the judge's.

Every test ends with the same question: do the rows, the desks, the ledger and the history tell one story, and is each
recorded decision the one that the reference models take? Two workers believe that a run is theirs, answers come late,
come twice or not at all, and the budget is one for all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from bus.chain import EMPTY_HEAD, next_head
from bus.port import Chunk
from bus.target import Target
from bus.types import Digest, Verb
from tests.batches import Batch, opened, refused
from tests.model_calls import (
    HELLO,
    LIMITS,
    LOST,
    answered,
    asked,
    check_calls,
    desk_of,
    figures,
    opened_call,
    succeeded,
)


@pytest.fixture
async def batch(server: Target) -> AsyncIterator[Batch]:
    """Three runs, admitted; two places at the candidate's endpoint, one at the judge's; 1,000 tokens for all."""
    async with opened(server.address(), limits=LIMITS, reclaim_ms=1_000) as one:
        await one.admit()
        yield one
        await check_calls(one)


# --- open_call --------------------------------------------------------------------------------------------


async def test_a_call_is_announced_in_four_fences_at_once(batch: Batch) -> None:
    """The lease, the transcript, the desk and the budget: the prompt leaves when all of them know of it."""
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held)
    assert desk_gen == 1
    assert await desk_of(batch) == {call.desk_lease: "live"}
    assert await figures(batch) == {"reserved": 100}
    (record,) = await batch.history("run.open_call")
    assert record.verbs == (
        "completion.open commit",
        "transcript.intend commit",
        "admission.acquire commit",
        "ledger.admit commit",
    )


async def test_an_announcement_that_is_sent_again_is_the_same_one(batch: Batch) -> None:
    """Its answer was lost. It takes no second place, and reserves nothing twice."""
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held)
    async with batch.unchanged():
        again = await batch.bus.open_call(held.ref, call)
    assert (again.verb, again.answer) == (Verb.DUPLICATE, {"desk_gen": desk_gen})


async def test_an_announcement_that_comes_again_when_its_answer_is_bound_is_still_known(batch: Batch) -> None:
    """A late copy on the way; also when the next step is under way, and its sender has lost the run."""
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held)
    await batch.bus.bind_call(held.ref, call, desk_gen, answered())
    await opened_call(batch, held, n=2, parent=HELLO, seq=2)
    for _ in range(2):
        async with batch.unchanged():
            again = await batch.bus.open_call(held.ref, call)
            assert (again.verb, again.answer) == (Verb.DUPLICATE, {"desk_gen": desk_gen})
        await succeeded(batch, held)


async def test_an_announcement_that_comes_again_when_it_was_dropped_licenses_nothing(batch: Batch) -> None:
    """Its place is free and its reservation lifted: a prompt that left now would be in nobody's account."""
    held = await batch.claimed()
    call, _ = await opened_call(batch, held)
    await batch.bus.drop_call(held.ref, call, cancelled=True)
    async with batch.unchanged():
        assert refused(await batch.bus.open_call(held.ref, call)) == "reject lease_reused (run.open_call)"


async def test_an_announcement_that_comes_again_when_its_place_was_fenced_licenses_nothing(batch: Batch) -> None:
    """It was given up and may still be on its way. Its reservation stands, but no second prompt may use it."""
    held = await batch.claimed()
    call, _ = await opened_call(batch, held)
    await batch.bus.drop_call(held.ref, call, cancelled=False)
    async with batch.unchanged():
        assert refused(await batch.bus.open_call(held.ref, call)) == "reject lease_reused (run.open_call)"


async def test_a_request_under_way_is_not_announced_with_another_prompt(batch: Batch) -> None:
    """The same ids and other bytes: not a copy of the first announcement."""
    held = await batch.claimed()
    call, _ = await opened_call(batch, held)
    async with batch.unchanged():
        decision = await batch.bus.open_call(held.ref, replace(call, prompt_hash=Digest("f" * 64)))
        assert refused(decision) == "reject request_reused (completion.open)"


async def test_a_place_is_not_taken_for_two_attempts(batch: Batch) -> None:
    """A client that draws its ids once: the second attempt would stand at no desk."""
    held = await batch.claimed()
    call, _ = await opened_call(batch, held)
    await batch.bus.drop_call(held.ref, call, cancelled=True)
    second = replace(asked(held.ref), desk_lease=call.desk_lease)
    async with batch.unchanged():
        assert refused(await batch.bus.open_call(held.ref, second)) == "reject lease_reused (run.open_call)"


async def test_who_has_a_place_without_knowing_it_is_not_left_waiting_for_one(batch: Batch) -> None:
    """A late copy of what was refused was granted: only its sender can give the place up, and has to ask for that."""
    first, second, third = [await batch.claimed() for _ in range(3)]
    await opened_call(batch, first)
    assert await batch.bus.has_room(second.ref, asked(second.ref))
    await opened_call(batch, second)
    looks = [await batch.bus.has_room(one.ref, asked(one.ref)) for one in (second, third)]
    assert looks == [True, False], "the third has none, and the desk is full"


async def test_a_second_request_of_a_step_is_told_which_one_is_under_way(batch: Batch) -> None:
    """Its own, or a late copy that was granted to nobody who waits for it: then it is dropped by what is told here."""
    held = await batch.claimed()
    call, _ = await opened_call(batch, held)
    async with batch.unchanged():
        decision = await batch.bus.open_call(held.ref, asked(held.ref))
        assert refused(decision) == "reject step_in_flight (admission.acquire)"
    told = decision.answer
    assert told == {"request": call.request_id, "attempt": call.attempt, "desk_lease": call.desk_lease}
    named = replace(call, request_id=told["request"], attempt=told["attempt"], desk_lease=told["desk_lease"])
    assert (await batch.bus.drop_call(held.ref, named, cancelled=True)).verb is Verb.COMMIT
    await opened_call(batch, held)


async def test_another_prompt_in_the_same_place_is_a_conflict(batch: Batch) -> None:
    """What was announced there must come, or be resolved as lost, before anything else can stand there."""
    held = await batch.claimed()
    call, _ = await opened_call(batch, held)
    await batch.bus.drop_call(held.ref, call, cancelled=True)
    async with batch.unchanged():
        decision = await batch.bus.open_call(held.ref, asked(held.ref, prompt="another"))
        assert refused(decision) == "reject intent_conflict (transcript.intend)"
    resolved = await batch.bus.resolve(held.ref, EMPTY_HEAD, 1, LOST)
    await opened_call(batch, held, prompt="another", parent=resolved.answer["head"], seq=2)


async def test_a_full_desk_lets_nobody_in(batch: Batch) -> None:
    """Two places, three runs. The third gets in when one of them is given back."""
    first, second, third = [await batch.claimed() for _ in range(3)]
    call, _ = await opened_call(batch, first)
    await opened_call(batch, second)
    async with batch.unchanged():
        assert (
            refused(await batch.bus.open_call(third.ref, asked(third.ref))) == "reject bound_full (admission.acquire)"
        )
    await batch.bus.drop_call(first.ref, call, cancelled=True)
    await opened_call(batch, third)


async def test_a_call_beyond_the_budget_is_told_what_is_spent_and_what_is_reserved(batch: Batch) -> None:
    """While others hold reservations it waits; when nothing is reserved there is nothing to wait for."""
    first, second = await batch.claimed(), await batch.claimed()
    call, _ = await opened_call(batch, first, estimate=900)
    await batch.bus.flush(first.ref, call, [Chunk(1, 50)])
    late = asked(second.ref, estimate=101)
    decision = await batch.bus.open_call(second.ref, late)
    assert refused(decision) == "reject over_budget (ledger.admit)"
    assert decision.answer == {"spent": 50, "reserved": 850}
    assert await desk_of(batch) == {call.desk_lease: "live"}
    assert refused(await batch.bus.open_call(second.ref, late)) == "reject attempt_reused (ledger.admit)"
    await opened_call(batch, second, estimate=100)


async def test_no_number_of_workers_passes_the_budget_together(server: Target) -> None:
    """Thirty ask at once, over two connections; ten fit. Each then spends all that it was admitted for."""
    limits = {**LIMITS, "model_slots": 64}
    async with opened(server.address(), runs=30, limits=limits) as batch:
        await batch.admit()
        other = await Batch.open(server.address(), runs=30, limits=limits)
        holders = [await batch.claimed() for _ in batch.runs]
        buses = [batch.bus, other.bus] * 15
        calls = [asked(held.ref) for held in holders]
        decisions = await asyncio.gather(
            *(bus.open_call(held.ref, call) for bus, held, call in zip(buses, holders, calls, strict=True))
        )
        granted = [at for at, decision in enumerate(decisions) if decision.verb is Verb.COMMIT]
        assert len(granted) == 10
        assert {decision.reason for decision in decisions} == {None, "over_budget"}
        assert await figures(batch) == {"reserved": 1_000}
        await asyncio.gather(
            *(buses[at].flush(holders[at].ref, calls[at], [Chunk(n, 10) for n in range(1, 11)]) for at in granted)
        )
        assert await figures(batch) == {"spent": 1_000, "durable": 1_000}
        await other.aclose()
        await check_calls(batch)


async def test_a_lease_of_another_life_of_the_server_announces_and_binds_nothing(server: Target) -> None:
    """A server that came back may have forgotten who was fenced. What it granted before is void until claimed anew."""
    async with opened(server.address(), runs=1, limits=LIMITS) as batch:
        await batch.admit()
        held = await batch.claimed()
        call, desk_gen = await opened_call(batch, held)
        await batch.wire.call("HSET", batch.keys.batch_row, "server", "another")
        decision = await batch.bus.bind_call(held.ref, call, desk_gen, answered())
        assert refused(decision) == "reject stale_lease (completion.bind)"
        decision = await batch.bus.open_call(held.ref, asked(held.ref))
        assert refused(decision) == "reject stale_lease (completion.open)"
        assert (await figures(batch))["spent"] == 30
        second = await succeeded(batch, held)
        head = (await batch.bus.resolve(second.ref, EMPTY_HEAD, 1, LOST)).answer["head"]
        call, desk_gen = await opened_call(batch, second, parent=head, seq=2)
        assert (await batch.bus.bind_call(second.ref, call, desk_gen, answered())).verb is Verb.COMMIT


@pytest.mark.parametrize("end", ["claimed", "yielded", "sealed", "ended"])
async def test_who_lost_the_run_announces_nothing(batch: Batch, end: str) -> None:
    """A zombie's prompt would be paid for, and its answer belong to nobody."""
    held = await batch.claimed()
    if end == "claimed":
        await succeeded(batch, held)
    elif end == "yielded":
        await batch.bus.give_back(held.ref)
    elif end == "sealed":
        await batch.seal(held)
    else:
        await batch.bus.hole(held.ref, "solver_error", "")
    async with batch.unchanged():
        decision = await batch.bus.open_call(held.ref, asked(held.ref))
        assert decision.reason in ("stale_lease", "sealed"), decision


async def test_a_conversation_that_was_given_up_asks_nothing_more(batch: Batch) -> None:
    """While it is being given up, and afterwards: the row's conversation is another by then."""
    held = await batch.claimed()
    row = batch.keys.run(held.ref.run)
    await batch.wire.call("HSET", row, "turning", "1")
    async with batch.unchanged():
        assert refused(await batch.bus.open_call(held.ref, asked(held.ref))) == "reject turning (run.open_call)"
    await batch.wire.call("HDEL", row, "turning")
    old = replace(held.ref, conversation=1)
    async with batch.unchanged():
        assert refused(await batch.bus.open_call(old, asked(old))) == "reject run_mismatch (run.open_call)"


@pytest.mark.parametrize(
    "wrong",
    [
        {"step": "c1#1~0.1"},
        {"step": "c0#1~1.1"},
        {"step": "c0#1~0."},
        {"step": "c0#1~0.1\n"},
        {"desk": "judge"},
        {"desk_lease": "a place"},
        {"request_id": "a\nrequest"},
        {"attempt": 0},
        {"estimate": -1},
    ],
    ids=str,
)
async def test_a_call_under_a_wrong_name_is_refused(batch: Batch, wrong: dict[str, object]) -> None:
    """A step of another run or conversation, another's desk, ids that a row could not give back as they came."""
    held = await batch.claimed()
    async with batch.unchanged():
        decision = await batch.bus.open_call(held.ref, replace(asked(held.ref), **wrong))  # type: ignore[arg-type]
        assert refused(decision) == "reject schema (run.open_call)"


# --- flush ------------------------------------------------------------------------------------------------


async def test_chunks_are_billed_as_they_arrive_and_once(batch: Batch) -> None:
    """Out of order, again, in groups that overlap: spent is the sum over the chunks, and what is reserved the rest."""
    held = await batch.claimed()
    call, _ = await opened_call(batch, held)
    first = await batch.bus.flush(held.ref, call, [Chunk(3, 30), Chunk(1, 10)])
    assert (first.verb, first.answer) == (Verb.COMMIT, {"billed": 40, "durable": 40, "watermark": 1})
    second = await batch.bus.flush(held.ref, call, [Chunk(1, 10), Chunk(2, 20)])
    assert (second.verb, second.answer) == (Verb.COMMIT, {"billed": 60, "durable": 60, "watermark": 3})
    again = await batch.bus.flush(held.ref, call, [Chunk(3, 30), Chunk(1, 10)])
    assert (again.verb, again.answer["billed"]) == (Verb.DUPLICATE, 60)
    assert await figures(batch) == {"spent": 60, "durable": 60, "reserved": 40}


async def test_a_chunk_that_was_only_paid_for_turns_durable_later(batch: Batch) -> None:
    """Its tokens were counted when they came; now a later holder could find them too."""
    held = await batch.claimed()
    call, _ = await opened_call(batch, held)
    await batch.bus.flush(held.ref, call, [Chunk(1, 10, durable=False)])
    assert await figures(batch) == {"spent": 10, "reserved": 90}
    await batch.bus.flush(held.ref, call, [Chunk(1, 10)])
    assert await figures(batch) == {"spent": 10, "durable": 10, "reserved": 90}


async def test_who_lost_the_run_still_says_what_it_was_sent(batch: Batch) -> None:
    """The tokens were delivered. A successor's lease does not make them unspent, nor does the end of the batch."""
    held = await batch.claimed()
    call, _ = await opened_call(batch, held)
    await succeeded(batch, held)
    assert (await batch.bus.flush(held.ref, call, [Chunk(1, 10)])).verb is Verb.COMMIT
    for run in batch.runs:
        await batch.end(run)
    await batch.bus.close(batch.name, "snapshot", 0)
    assert (await batch.bus.counters(batch.name)).status.ended
    assert (await batch.bus.flush(held.ref, call, [Chunk(2, 5)])).verb is Verb.COMMIT
    assert await figures(batch) == {"spent": 15, "durable": 15, "reserved": 85}


async def test_a_chunk_of_a_call_that_is_over_is_billed_as_an_orphan(batch: Batch) -> None:
    """The answer was no answer, its attempt is cut; what the endpoint still sends was spent, and counts for nothing."""
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held)
    await batch.bus.bind_call(held.ref, call, desk_gen, answered("", [Chunk(1, 10)], ok=False))
    decision = await batch.bus.flush(held.ref, call, [Chunk(2, 7), Chunk(3, 1)])
    assert refused(decision) == "reject attempt_closed (ledger.chunk)"
    assert await figures(batch) == {"spent": 18, "durable": 10}
    again = await batch.bus.flush(held.ref, call, [Chunk(2, 7), Chunk(3, 1)])
    assert again.verb is Verb.DUPLICATE
    assert await figures(batch) == {"spent": 18, "durable": 10}


async def test_any_number_of_chunks_is_billed_in_pieces(batch: Batch) -> None:
    """A script's work is bounded. A call that carries more has the rest flushed ahead of it."""
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held, estimate=900)
    chunks = [Chunk(n, 1) for n in range(1, 451)]
    flushed = await batch.bus.flush(held.ref, call, chunks)
    assert (flushed.verb, flushed.answer["watermark"]) == (Verb.COMMIT, 450)
    more = [*chunks, *(Chunk(n, 1) for n in range(451, 701))]
    assert (await batch.bus.bind_call(held.ref, call, desk_gen, answered("hello", more))).verb is Verb.COMMIT
    assert await figures(batch) == {"spent": 700, "durable": 700}
    async with batch.unchanged():
        words = [word for n in range(1, 202) for word in (str(n), "1", "1")]
        decision = await batch.bus._step(
            "flush", batch.name, run=held.ref.run, extra_argv={"chunks": words},
            step=call.step, attempt=call.attempt, chunks=201,
        )  # fmt: skip
        assert refused(decision) == "reject schema (run.flush)"


async def test_chunks_of_what_was_never_announced_are_refused(batch: Batch) -> None:
    """Nobody knows for what they were spent; nor of chunks that are none."""
    held = await batch.claimed()
    call = asked(held.ref)
    async with batch.unchanged():
        decision = await batch.bus.flush(held.ref, call, [Chunk(1, 10)])
        assert refused(decision) == "reject unknown_attempt (ledger.chunk)"
    call, _ = await opened_call(batch, held)
    async with batch.unchanged():
        for chunk in (Chunk(0, 1), Chunk(1, -1), Chunk(1, 2**53), Chunk(2**64, 1)):
            decision = await batch.bus.flush(held.ref, call, [Chunk(1, 1), chunk])
            assert refused(decision) == "reject schema (run.flush)"
        foreign = replace(call, step=call.step.replace("c0", "c1"))
        assert refused(await batch.bus.flush(held.ref, foreign, [Chunk(1, 1)])) == "reject schema (run.flush)"


# --- bind_call --------------------------------------------------------------------------------------------


async def test_an_answer_is_bound_in_four_fences_at_once(batch: Batch) -> None:
    """Its place is free, nothing is reserved any more, and the transcript is one event longer."""
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held)
    decision = await batch.bus.bind_call(held.ref, call, desk_gen, answered())
    assert (decision.verb, decision.answer) == (Verb.COMMIT, {"head": HELLO, "model_left": 1})
    assert [event.payload for event in await batch.bus.transcript(batch.name, held.ref.run)] == ["hello"]
    assert await desk_of(batch) == {}
    assert await figures(batch) == {"spent": 30, "durable": 30}
    row = await batch.row(held.ref.run)
    assert not [field for field in row if field == "calls" or field.startswith(("t.i:", "m.i:"))]


async def test_an_answer_that_is_sent_again_is_bound_once(batch: Batch) -> None:
    """Also when the step after it is bound, and when another worker has gone on with the run."""
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held)
    first = await batch.bus.bind_call(held.ref, call, desk_gen, answered())
    later, later_gen = await opened_call(batch, held, n=2, parent=HELLO, seq=2)
    await batch.bus.bind_call(held.ref, later, later_gen, answered("more"))
    for _ in range(2):
        async with batch.unchanged():
            again = await batch.bus.bind_call(held.ref, call, desk_gen, answered())
            assert (again.verb, again.answer) == (Verb.DUPLICATE, first.answer)
        await succeeded(batch, held)


async def test_another_answer_to_a_bound_step_is_refused(batch: Batch) -> None:
    """The endpoint delivered twice, and not the same: the first one stands. Nor is it taken for another's."""
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held)
    await batch.bus.bind_call(held.ref, call, desk_gen, answered())
    same = answered()
    for other, reply, refusal in (
        (call, answered("other"), "already_bound (completion.bind)"),
        (call, replace(same, digest=Digest("f" * 64)), "already_bound (completion.bind)"),
        (call, replace(answered("other"), digest=same.digest), "forged_prefix (transcript.append)"),
        (replace(call, prompt_hash=Digest("f" * 64)), same, "prompt_hash (completion.bind)"),
        (replace(call, request_id="another"), same, "unknown_request (completion.bind)"),
    ):
        async with batch.unchanged():
            assert refused(await batch.bus.bind_call(held.ref, other, desk_gen, reply)) == f"reject {refusal}"


async def test_a_zombies_answer_is_paid_for_and_not_bound(batch: Batch) -> None:
    """Its successor has the run. The tokens that it brings were spent; nothing else of it enters."""
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held)
    await succeeded(batch, held)
    decision = await batch.bus.bind_call(held.ref, call, desk_gen, answered())
    assert refused(decision) == "reject stale_lease (completion.bind)"
    assert await figures(batch) == {"spent": 30, "durable": 30, "reserved": 70}
    assert await desk_of(batch) == {call.desk_lease: "expired"}
    (record,) = await batch.history("run.bind_call")
    assert record.verbs == ("ledger.chunk commit", "ledger.chunk commit", "completion.bind reject stale_lease")
    async with batch.unchanged():
        await batch.bus.bind_call(held.ref, call, desk_gen, answered())
    assert await batch.bus.transcript(batch.name, held.ref.run) == []


async def test_what_a_refused_answer_brought_is_counted_without_a_trace_of_its_order(batch: Batch) -> None:
    """Its chunks came out of order. Once the gap is closed the row keeps no note of either side of it."""
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held)
    await succeeded(batch, held)
    chunks = [Chunk(3, 1), Chunk(2, 1), Chunk(5, 1, durable=False), Chunk(1, 1), Chunk(4, 1), Chunk(5, 1)]
    assert not (await batch.bus.bind_call(held.ref, call, desk_gen, answered("hello", chunks))).applied
    row = await batch.row(held.ref.run)
    assert not [field for field in row if field.startswith(("l.s:", "l.d:"))]
    assert await figures(batch) == {"spent": 5, "durable": 5, "reserved": 95}


async def test_a_corrupt_answer_costs_a_retry_and_frees_the_place(batch: Batch) -> None:
    """What was announced stands: the next request answers it. Delivered again, it costs no second retry."""
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held)
    corrupt = answered("", [Chunk(1, 10)], ok=False)
    decision = await batch.bus.bind_call(held.ref, call, desk_gen, corrupt)
    assert (str(decision), decision.answer) == ("replay payload_corrupt (completion.bind)", {"model_left": 0})
    assert await desk_of(batch) == {}
    assert await figures(batch) == {"spent": 10, "durable": 10}
    async with batch.unchanged():
        again = await batch.bus.bind_call(held.ref, call, desk_gen, corrupt)
        assert (again.verb, again.answer) == (Verb.REPLAY, {"model_left": 0})
    second, second_gen = await opened_call(batch, held)
    assert (await batch.bus.bind_call(held.ref, second, second_gen, answered())).verb is Verb.COMMIT


@pytest.mark.parametrize("ok", [True, False])
async def test_what_a_bound_answers_cost_was_guessed_at_is_counted_once(batch: Batch, ok: bool) -> None:
    """A stored answer or one that is none: its guess stands as one. Delivered again, nothing is billed, nor guessed."""
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held)
    reply = replace(answered("x", [Chunk(1, 10), Chunk(2, 20)], ok=ok), estimated=20)
    await batch.bus.bind_call(held.ref, call, desk_gen, reply)
    assert await figures(batch) == {"spent": 30, "durable": 30, "estimated": 20}
    async with batch.unchanged():
        await batch.bus.bind_call(held.ref, call, desk_gen, reply)


async def test_a_guess_that_was_billed_by_an_answer_in_doubt_is_counted_once(batch: Batch) -> None:
    """A chunk is missing: what was delivered is spent, and guessed, now. The answer that is bound adds nothing."""
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held)
    reply = replace(answered("x", [Chunk(2, 20)]), estimated=15)
    decision = await batch.bus.bind_call(held.ref, call, desk_gen, reply)
    assert decision.reason == "missing_chunks"
    assert await figures(batch) == {"spent": 20, "durable": 20, "reserved": 80, "estimated": 15}
    whole = replace(reply, chunks=[Chunk(1, 0), Chunk(2, 20)])
    assert (await batch.bus.bind_call(held.ref, call, desk_gen, whole)).verb is Verb.COMMIT
    assert await figures(batch) == {"spent": 20, "durable": 20, "estimated": 15}


async def test_a_corrupt_answer_beyond_the_retries_exhausts_the_run(batch: Batch) -> None:
    """No further prompt of it leaves. Its place is given back by its holder."""
    held = await batch.claimed()
    for _ in range(2):
        call, desk_gen = await opened_call(batch, held)
        decision = await batch.bus.bind_call(held.ref, call, desk_gen, answered("", [], ok=False))
    assert refused(decision) == "reject retries_exhausted (completion.bind)"
    assert (await batch.bus.drop_call(held.ref, call, cancelled=True)).verb is Verb.COMMIT
    decision = await batch.bus.open_call(held.ref, asked(held.ref))
    assert refused(decision) == "reject retries_exhausted (completion.open)"


async def test_an_answer_that_overtook_a_chunk_waits_for_it(batch: Batch) -> None:
    """A flush is still on its way: nothing is decided yet, and the same answer is bound when it has come."""
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held)
    reply = replace(answered("hello", [Chunk(3, 5)]), last_seq=3)
    decision = await batch.bus.bind_call(held.ref, call, desk_gen, reply)
    assert (decision.verb, decision.reason) == (Verb.IN_DOUBT, "missing_chunks")
    assert await desk_of(batch) == {call.desk_lease: "live"}
    assert await batch.bus.transcript(batch.name, held.ref.run) == []
    await batch.bus.flush(held.ref, call, [Chunk(1, 5), Chunk(2, 5)])
    assert (await batch.bus.bind_call(held.ref, call, desk_gen, reply)).verb is Verb.COMMIT


async def test_an_answer_of_which_a_chunk_is_not_durable_is_cut(batch: Batch) -> None:
    """Part of it was paid for and cannot be found again. It is given up, and asked for anew."""
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held)
    reply = answered("hello", [Chunk(1, 5), Chunk(2, 5, durable=False)])
    decision = await batch.bus.bind_call(held.ref, call, desk_gen, reply)
    assert refused(decision) == "reject not_durable (ledger.done)"
    assert (await batch.bus.drop_call(held.ref, call, cancelled=True)).verb is Verb.COMMIT
    assert await figures(batch) == {"spent": 10, "durable": 5}
    second, second_gen = await opened_call(batch, held)
    assert (await batch.bus.bind_call(held.ref, second, second_gen, answered())).verb is Verb.COMMIT


async def test_the_answer_to_a_request_that_was_given_up_is_refused(batch: Batch) -> None:
    """It was silent too long and asked for anew; then both answers come."""
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held)
    await batch.bus.drop_call(held.ref, call, cancelled=False)
    second, second_gen = await opened_call(batch, held)
    decision = await batch.bus.bind_call(held.ref, call, desk_gen, answered())
    assert refused(decision) == "reject superseded (completion.bind)"
    assert await figures(batch) == {"spent": 30, "durable": 30, "reserved": 170}
    assert (await batch.bus.bind_call(held.ref, second, second_gen, answered())).verb is Verb.COMMIT


@pytest.mark.parametrize(
    ("wrong", "refusal"),
    [
        ({"prompt_hash": "f" * 64}, "reject prompt_hash (completion.bind)"),
        ({"parent": "f" * 64}, "reject forged_prefix (transcript.append)"),
        ({"seq": 2}, "reject seq_gap (transcript.append)"),
        ({"request_id": "request0"}, "reject schema (run.bind_call)"),
        ({"attempt": 1_000_000}, "reject schema (run.bind_call)"),
        ({"desk": "judge"}, "reject schema (run.bind_call)"),
    ],
    ids=str,
)
async def test_the_answer_to_something_else_is_refused(batch: Batch, wrong: dict[str, object], refusal: str) -> None:
    """Another prompt's, another prefix's, two calls of one holder mixed up. Only what came with it is paid for."""
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held)
    await batch.bus.flush(held.ref, call, answered().chunks)
    async with batch.unchanged():
        other = replace(call, **wrong)  # type: ignore[arg-type]
        reply = answered(chunks=[] if "attempt" in wrong else answered().chunks)
        assert refused(await batch.bus.bind_call(held.ref, other, desk_gen, replace(reply, last_seq=2))) == refusal
    assert len(await batch.dead()) == ("transcript" in refusal)


async def test_the_answer_in_a_conversation_that_was_given_up_is_refused(batch: Batch) -> None:
    """The row has turned to another; neither its call nor what was lost of it stands anywhere."""
    held = await batch.claimed()
    old = replace(held.ref, conversation=1)
    call = asked(old)
    decision = await batch.bus.bind_call(old, call, 1, answered())
    assert refused(decision) == "reject run_mismatch (run.bind_call)"
    assert refused(await batch.bus.resolve(old, EMPTY_HEAD, 1, LOST)) == "reject run_mismatch (run.resolve)"


async def test_an_answer_under_another_generation_of_the_place_is_refused(batch: Batch) -> None:
    """The number alone or the id alone is not the place."""
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held)
    await batch.bus.flush(held.ref, call, answered().chunks)
    async with batch.unchanged():
        decision = await batch.bus.bind_call(held.ref, call, desk_gen + 1, answered())
        assert refused(decision) == "reject stale_gen (admission.apply)"


async def test_after_the_close_nothing_is_bound(batch: Batch) -> None:
    """The gate has read what there is. What the answer cost is recorded behind it."""
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held)
    for run in batch.runs:
        await batch.end(run)
    await batch.bus.close(batch.name, "snapshot", 0)
    assert not (await batch.bus.bind_call(held.ref, call, desk_gen, answered())).applied
    assert (await figures(batch))["spent"] == 30


async def test_an_answer_without_content_or_end_is_no_answer(batch: Batch) -> None:
    """Whoever presents one as whole is broken."""
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held)
    async with batch.unchanged():
        for reply in (answered(""), answered(chunks=[]), answered(chunks=[Chunk(1, -1)])):
            assert (
                refused(await batch.bus.bind_call(held.ref, call, desk_gen, reply)) == "reject schema (run.bind_call)"
            )


async def test_a_conversation_that_begins_anew_asks_under_names_of_its_own(batch: Batch) -> None:
    """The first step of the new one is neither bound nor announced by the first of the old; who drops the old's may."""
    held = await batch.claimed()
    call, desk_gen = await opened_call(batch, held)
    await batch.bus.bind_call(held.ref, call, desk_gen, answered())
    left, _ = await opened_call(batch, held, n=2, parent=HELLO, seq=2)
    turned = await batch.bus.turn(held.ref, HELLO, "turned")
    assert turned.verb is Verb.COMMIT, turned
    async with batch.unchanged():
        assert refused(await batch.bus.open_call(held.ref, asked(held.ref))) == "reject run_mismatch (run.open_call)"
        assert refused(await batch.bus.bind_call(held.ref, call, desk_gen, answered())).startswith(
            "reject run_mismatch"
        )
    assert (await batch.bus.drop_call(held.ref, left, cancelled=True)).verb is Verb.COMMIT
    anew = replace(held, ref=replace(held.ref, conversation=1))
    head = turned.answer["head"]
    call, desk_gen = await opened_call(batch, anew, parent=head, seq=2)
    bound = await batch.bus.bind_call(anew.ref, call, desk_gen, answered())
    assert (bound.verb, bound.answer["head"]) == (Verb.COMMIT, next_head(head, "hello"))
    second = await succeeded(batch, held)
    assert (second.ref.conversation, second.decision.answer["length"]) == (1, 2)
    await opened_call(batch, second, n=2, parent=bound.answer["head"], seq=3)
