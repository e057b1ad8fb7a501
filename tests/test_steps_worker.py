"""The worker's steps on a real server: claim, heartbeat, append, seal, hand back, end as a hole.

Two workers believe that a run is theirs: one was taken for dead and was not. Everything here is about what the late one
may still do (nothing), what it may not take from its successor (its message), and what is left of what it said.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import msgpack
import pytest

from bus.chain import EMPTY_HEAD, next_head
from bus.envelopes import MAX_PAYLOAD, decode
from bus.errors import InputError
from bus.port import Group, Held, Ref
from bus.target import Target
from bus.types import EntryId, Gen, LeaseId, RunId, Verb
from tests.batches import P1, S1, W1, W2, Batch, opened, refused
from tests.fleet import eventually


@pytest.fixture
async def batch(server: Target) -> AsyncIterator[Batch]:
    """Three runs, admitted; each may be claimed three times."""
    async with opened(server.address()) as one:
        await one.admit()
        yield one


# --- claim ------------------------------------------------------------------------------------------------

_FRESH = {
    "conversation": 0,
    "turning": False,
    "head": EMPTY_HEAD,
    "length": 0,
    "unresolved": [],
    "windows": [],
    "epoch": 0,
    "wrote": False,
}
"""What a claim tells of a run that has done nothing yet."""


async def test_a_delivered_run_is_claimed_with_a_fresh_generation(batch: Batch) -> None:
    """The worker that was given the message is its holder from here on, and is told where the transcript stands."""
    held = await batch.claimed()
    assert held.decision.answer == _FRESH | {"gen": 1, "attempts": 1}
    (row,) = await batch.bus.rows(batch.name, [held.ref.run])
    assert (row.state, row.consumer, row.attempts) == ("running", W1, 1)


async def test_a_claim_that_is_sent_again_is_the_same_claim(batch: Batch) -> None:
    """One lease, one generation, one attempt."""
    held = await batch.claimed()
    async with batch.unchanged():
        again = await batch.bus.claim(held.entry, held.ref.lease_id, W1)
    assert (again.verb, again.answer) == (Verb.DUPLICATE, held.decision.answer)


async def test_who_takes_a_silent_holders_run_over_gets_the_next_generation(batch: Batch) -> None:
    """And what the first one had committed: the prefix from which the solver is answered."""
    first = await batch.claimed()
    await batch.bus.append(first.ref, EMPTY_HEAD, 1, ["one", "two"])
    await batch.taken(first.entry, W2)
    second = await batch.claimed(W2, first.entry)
    head = next_head(next_head(EMPTY_HEAD, "one"), "two")
    assert second.decision.answer == _FRESH | {"gen": 2, "attempts": 2, "head": head, "length": 2}
    assert [event.payload for event in await batch.bus.transcript(batch.name, first.ref.run)] == ["one", "two"]


async def test_a_late_copy_of_an_old_claim_takes_nothing_back(batch: Batch) -> None:
    """It comes after the successor's claim, from a consumer that owns nothing any more."""
    first = await batch.claimed()
    await batch.taken(first.entry, W2)
    second = await batch.claimed(W2, first.entry)
    async with batch.unchanged():
        late = await batch.bus.claim(first.entry, first.ref.lease_id, W1)
        assert refused(late) == "reject lease_reused (run.claim)"
    assert await batch.pending(Group.WORKER) == {second.entry.id: W2}
    assert (await batch.seal(second)).verb is Verb.COMMIT


async def test_a_lease_id_of_another_run_is_refused(batch: Batch) -> None:
    """Drawn at random, an id stands for one claim of one run. Two that share it are a client that is broken."""
    held = await batch.claimed()
    entry = await batch.delivered()
    async with batch.unchanged():
        assert refused(await batch.bus.claim(entry, held.ref.lease_id, W1)) == "reject lease_reused (run.claim)"


async def test_a_worker_that_slept_before_its_claim_is_no_longer_the_owner(any_server: Target) -> None:
    """It was given the message, and while it slept another took it over. Its own memory is not asked, the group is."""
    async with opened(any_server.address(), runs=1) as batch:
        await batch.admit()
        entry = await batch.taken(await batch.delivered(W1), W2)
        async with batch.unchanged():
            assert refused(await batch.bus.claim(entry, batch.lease(), W1)) == "reject not_owner (run.claim)"
        assert (await batch.claimed(W2, entry)).ref.gen == 1


async def test_a_message_that_was_delivered_to_nobody_cannot_be_claimed(batch: Batch) -> None:
    """Someone read the stream beside its group."""
    entry = replace(await batch.delivered(), id=EntryId("1-1"))
    async with batch.unchanged():
        assert refused(await batch.bus.claim(entry, batch.lease(), W1)) == "reject not_owner (run.claim)"


async def test_a_claim_of_what_is_no_entry_is_refused(batch: Batch) -> None:
    """Checked before the server is asked, which would raise."""
    entry = replace(await batch.delivered(), id=EntryId("none"))
    async with batch.unchanged():
        assert refused(await batch.bus.claim(entry, batch.lease(), W1)) == "reject schema (run.claim)"


@pytest.mark.parametrize("end", ["sealed", "scored", "hole"])
async def test_a_message_of_a_run_that_has_ended_is_taken_off(batch: Batch, end: str) -> None:
    """A second message of the same run, come late. Nobody will ever need it, so it is acknowledged with the refusal."""
    if end == "hole":
        held = await batch.claimed()
        await batch.bus.hole(held.ref, "solver_error", "boom")
    else:
        held = await batch.sealed()
        if end == "scored":
            scoring = await batch.scoring()
            await batch.bus.score(scoring.ref, scoring.judgement)
    row = await batch.row(held.ref.run)
    entry = await batch.forged(held.ref.run)
    assert refused(await batch.bus.claim(entry, batch.lease(), W1)) == "reject ended (run.claim)"
    assert entry.id not in await batch.pending(Group.WORKER)
    assert held.ref.run not in await batch.waiting(Group.WORKER)
    assert await batch.row(held.ref.run) == row


@pytest.mark.parametrize("claimed", [False, True], ids=["queued", "running"])
async def test_a_second_message_of_the_same_run_takes_nothing_from_the_first(batch: Batch, claimed: bool) -> None:
    """A retried XADD, or a message that came back. The row names the one that counts; the other is taken off."""
    run = batch.runs[0]
    entry = await batch.delivered()
    held = await batch.claimed(W1, entry) if claimed else None
    second = await batch.forged(run, W2)
    before = await batch.row(run)
    assert refused(await batch.bus.claim(second, batch.lease(), W2)) == "reject duplicate_entry (run.claim)"
    assert await batch.row(run) == before
    pending = await batch.pending(Group.WORKER)
    assert second.id not in pending
    assert pending[entry.id] == W1
    assert (await batch.seal(held or await batch.claimed(W1, entry))).verb is Verb.COMMIT


async def test_a_run_that_silences_each_of_its_holders_ends_as_poison(server: Target) -> None:
    """It kills its worker each time. The claim beyond the limit ends it: place back, result out, message off."""
    async with opened(server.address(), runs=1, max_deliveries=2) as batch:
        await batch.admit()
        first = await batch.claimed()
        second = await batch.claimed(W1, first.entry)
        assert second.decision.answer["attempts"] == 2
        decision = await batch.bus.claim(first.entry, batch.lease(), W1)
        assert refused(decision) == "reject poison (run.claim)"
        counters = await batch.bus.counters(batch.name)
        assert (counters.holes, counters.hole_reasons, counters.in_flight) == (1, {"poison": 1}, 0)
        assert await batch.waiting(Group.WORKER) == []
        assert await batch.waiting(Group.PLANNER) == batch.runs
        (row,) = await batch.bus.rows(batch.name, batch.runs)
        assert (row.hole, row.detail) == ("poison", "every worker that held it went silent")
        async with batch.unchanged():
            assert refused(await batch.seal(second)) == "reject stale_gen (transcript.append)"
        assert (await batch.bus.close(batch.name, "x", 0)).reason == "below_quorum"


async def test_a_sealed_run_does_not_end_as_poison_by_a_late_message(server: Target) -> None:
    """Its last attempt was the one that succeeded. The state is looked at before the attempts are counted."""
    async with opened(server.address(), runs=1, max_deliveries=1) as batch:
        await batch.admit()
        held = await batch.sealed()
        entry = await batch.forged(held.ref.run)
        assert refused(await batch.bus.claim(entry, batch.lease(), W1)) == "reject ended (run.claim)"
        assert await batch.state(held.ref.run) == "sealed"


async def test_idle_messages_of_a_silent_worker_are_taken_over(batch: Batch) -> None:
    """What `XAUTOCLAIM` gives; who is not idle for long enough keeps his."""
    entry = await batch.delivered(W1)
    assert await batch.bus.take_idle(Group.WORKER, W2, [batch.name], 10, 60_000) == []
    taken = await batch.bus.take_idle(Group.WORKER, W2, [batch.name], 10, 0)
    assert [one.id for one in taken] == [entry.id]
    assert await batch.pending(Group.WORKER) == {entry.id: W2}


async def test_a_worker_finds_what_it_was_given_before(batch: Batch) -> None:
    """Its answer was lost, or it was started again under the same name. What it has claimed already is among it."""
    held, waiting = await batch.claimed(), await batch.delivered()
    await batch.delivered(W2)
    own = await batch.bus.own_pending(Group.WORKER, W1, [batch.name], 10)
    assert [entry.id for entry in own] == [held.entry.id, waiting.id]


# --- heartbeat --------------------------------------------------------------------------------------------


_WHILE = 30  # ms of idle time that a test waits for, and then looks whether it was renewed


async def _grown_idle(batch: Batch, *entries: EntryId) -> None:
    """Wait until nobody has renewed these for a while."""
    for entry in entries:
        await eventually(lambda entry=entry: _is_idle(batch, entry), "the entry to grow idle")  # type: ignore[misc]


async def _is_idle(batch: Batch, entry: EntryId) -> bool:
    return await batch.idle_ms(entry) >= _WHILE


async def test_a_beat_renews_what_is_held_and_what_waits_to_be_claimed(batch: Batch) -> None:
    """Idle time is the lease's clock. A beat that kept everything alive decides nothing, and leaves no record."""
    held, waiting = await batch.claimed(), await batch.delivered()
    await _grown_idle(batch, held.entry.id, waiting.id)
    records = await batch.history()
    young: set[EntryId] = set()

    async def renewed() -> bool:  # a slow machine looks a while after the beat: then it beats again
        (decision,) = await batch.bus.heartbeat(Group.WORKER, W1, Held([held.ref], [waiting]))
        assert decision.verb is Verb.COMMIT
        young.update([entry for entry in (held.entry.id, waiting.id) if await batch.idle_ms(entry) < _WHILE])
        return young == {held.entry.id, waiting.id}

    await eventually(renewed, "both to be renewed")
    assert await batch.history() == records


async def test_a_live_holder_takes_its_message_back_from_who_has_not_claimed_it(any_server: Target) -> None:
    """It was silent a moment too long; another took the message and then slept before its claim. The lease decides."""
    async with opened(any_server.address(), runs=1) as batch:
        await batch.admit()
        held = await batch.claimed(W1)
        await batch.taken(held.entry, W2)
        (decision,) = await batch.bus.heartbeat(Group.WORKER, W1, Held([held.ref]))
        assert decision.verb is Verb.COMMIT
        assert await batch.pending(Group.WORKER) == {held.entry.id: W1}
        assert refused(await batch.bus.claim(held.entry, batch.lease(), W2)) == "reject not_owner (run.claim)"
        assert (await batch.seal(held)).verb is Verb.COMMIT


async def test_a_fenced_holder_learns_it_from_its_beat_and_renews_nothing(batch: Batch) -> None:
    """The message is its successor's: neither its owner nor its idle time changes. The refusal is recorded."""
    first, other = await batch.claimed(), await batch.claimed()
    await batch.taken(first.entry, W2)
    await batch.claimed(W2, first.entry)
    await _grown_idle(batch, first.entry.id)
    decisions = await batch.bus.heartbeat(Group.WORKER, W1, Held([first.ref, other.ref]))
    assert [decision.reason for decision in decisions] == ["stale_lease", None]
    assert (await batch.pending(Group.WORKER))[first.entry.id] == W2
    assert await batch.idle_ms(first.entry.id) >= _WHILE
    assert await batch.refusals() == {"stale_lease": 1}
    assert [record.verbs for record in await batch.history("run.heartbeat")] == [("run.heartbeat reject stale_lease",)]


async def test_a_message_that_waits_is_renewed_by_its_owner_only(batch: Batch) -> None:
    """Who was slow would otherwise take it from the one that has it now."""
    entry = await batch.taken(await batch.delivered(W1), W2)
    await _grown_idle(batch, entry.id)
    assert await batch.bus.heartbeat(Group.WORKER, W1, Held([], [entry])) == []
    assert await batch.pending(Group.WORKER) == {entry.id: W2}
    assert await batch.idle_ms(entry.id) >= _WHILE


async def test_a_sealed_runs_lease_is_no_longer_kept_alive(batch: Batch) -> None:
    """Its message is off, and the next one is a scorer's."""
    held = await batch.sealed()
    (decision,) = await batch.bus.heartbeat(Group.WORKER, W1, Held([held.ref]))
    assert decision.reason == "stale_lease"


async def test_any_number_of_leases_is_kept_alive_in_pieces(batch: Batch) -> None:
    """A script's work is bounded; a beat over more than it takes is sent as several, and each lease gets its answer."""
    held = await batch.claimed()
    gone = [Ref(batch.name, RunId(f"x{n}#1"), LeaseId(f"G{n}"), Gen(1)) for n in range(700)]
    waiting = [await batch.delivered()] * 1_100
    decisions = await batch.bus.heartbeat(Group.WORKER, W1, Held([*gone, held.ref], waiting))
    assert [decision.reason for decision in decisions] == ["stale_lease"] * 700 + [None]


async def test_a_beat_over_what_is_no_entry_or_no_group_is_refused(batch: Batch) -> None:
    """Before anything is renewed: the server would raise in the middle."""
    held = await batch.claimed()
    keys = {"stream": batch.keys.stream("runs"), "rows": [batch.keys.run(held.ref.run)]}
    async with batch.unchanged():
        for group, entry in (("worker", "none"), ("worker", ""), ("planner", held.entry.id), ("nobody", held.entry.id)):
            items = [held.ref.run, held.ref.lease_id, str(held.ref.gen), "0", entry]
            decision = await batch.bus._step(
                "heartbeat", batch.name, extra_keys=keys, extra_argv={"items": items},
                group=group, consumer=W1, leases=1, entries=1,
            )  # fmt: skip
            assert refused(decision) == "reject schema (run.heartbeat)"


async def test_a_beat_survives_a_group_that_is_gone(any_server: Target) -> None:
    """The lease is live by its row; there is no message to renew. Whoever reads next makes the group again."""
    async with opened(any_server.address(), runs=1) as batch:
        await batch.admit()
        held = await batch.claimed()
        await batch.wire.call("XGROUP", "DESTROY", batch.keys.stream("runs"), "worker")
        (decision,) = await batch.bus.heartbeat(Group.WORKER, W1, Held([held.ref], [held.entry]))
        assert decision.verb is Verb.COMMIT
        assert (await batch.seal(held)).verb is Verb.COMMIT


# --- append -----------------------------------------------------------------------------------------------


async def test_events_extend_the_chain_by_one_head_each(batch: Batch) -> None:
    """Each head commits to everything before it."""
    held = await batch.claimed()
    first = await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["one"])
    head = next_head(EMPTY_HEAD, "one")
    assert first.answer == {"head": head, "length": 1}
    second = await batch.bus.append(held.ref, head, 2, ["two", "three ☃"])
    assert second.answer["length"] == 3
    events = await batch.bus.transcript(batch.name, held.ref.run)
    assert [(event.seq, event.payload, event.gen) for event in events] == [
        (1, "one", 1),
        (2, "two", 1),
        (3, "three ☃", 1),
    ]


async def test_events_that_are_sent_again_are_not_written_again(batch: Batch) -> None:
    """Also when some of them are new: what is known is passed over, the rest is added."""
    held = await batch.claimed()
    await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["one", "two"])
    async with batch.unchanged():
        again = await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["one", "two"])
        assert (again.verb, again.answer["length"]) == (Verb.DUPLICATE, 2)
    more = await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["one", "two", "three"])
    assert (more.verb, more.answer["length"]) == (Verb.COMMIT, 3)


async def test_an_event_on_another_prefix_is_refused_and_kept_as_a_dead_letter(batch: Batch) -> None:
    """It would make the transcript say what the agent did not do. A person may want to see it all the same."""
    held = await batch.claimed()
    await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["one"])
    async with batch.unchanged():
        decision = await batch.bus.append(held.ref, next_head(EMPTY_HEAD, "uno"), 2, ["two"])
    assert refused(decision) == "reject forged_prefix (transcript.append)"
    (letter,) = await batch.dead()
    assert (letter["reason"], letter["run"], letter["payload"]) == ("forged_prefix", held.ref.run, "two")


async def test_an_event_that_leaves_a_gap_is_refused(batch: Batch) -> None:
    """The one before it was never committed."""
    held = await batch.claimed()
    async with batch.unchanged():
        decision = await batch.bus.append(held.ref, EMPTY_HEAD, 2, ["two"])
    assert refused(decision) == "reject seq_gap (transcript.append)"


async def test_a_fenced_holders_event_does_not_enter_its_successors_transcript(batch: Batch) -> None:
    """It has the right prefix, the next number and a good hash; it does not have the run any more."""
    first = await batch.claimed()
    await batch.claimed(W1, first.entry)
    async with batch.unchanged():
        assert refused(await batch.bus.append(first.ref, EMPTY_HEAD, 1, ["late"])) == (
            "reject stale_gen (transcript.append)"
        )
    assert [letter["payload"] for letter in await batch.dead()] == ["late"]


async def test_the_lease_is_compared_and_not_its_number_alone(batch: Batch) -> None:
    """After a failover two holders may have the same number; the random id tells them apart."""
    held, other = await batch.claimed(), await batch.claimed()
    stranger = replace(held.ref, lease_id=LeaseId("drawn elsewhere"))
    crossed = replace(held.ref, lease_id=other.ref.lease_id)
    async with batch.unchanged():
        assert (await batch.bus.append(stranger, EMPTY_HEAD, 1, ["x"])).reason == "lease_mismatch"
        assert (await batch.bus.append(crossed, EMPTY_HEAD, 1, ["x"])).reason == "run_mismatch"
        assert (await batch.seal(replace(held, ref=stranger))).reason == "lease_mismatch"
        assert (await batch.bus.give_back(stranger)).reason == "stale_lease"
        assert (await batch.bus.hole(stranger, "x", "")).reason == "stale_lease"


async def test_nothing_is_appended_to_a_sealed_transcript(batch: Batch) -> None:
    """The head that is scored is the head that was sealed."""
    held = await batch.sealed()
    head = next_head(EMPTY_HEAD, "answer")
    async with batch.unchanged():
        assert (await batch.bus.append(held.ref, head, 2, ["more"])).reason == "sealed"


async def test_an_event_without_content_or_beyond_the_limit_is_refused(batch: Batch) -> None:
    """What is too large for the server is an artifact; the message says so before anything is sent."""
    held = await batch.claimed()
    async with batch.unchanged():
        assert (await batch.bus.append(held.ref, EMPTY_HEAD, 1, [""])).reason == "schema"
        assert (await batch.bus.append(held.ref, EMPTY_HEAD, 1, [])).reason == "schema"
        for send in (
            batch.bus.append(held.ref, EMPTY_HEAD, 1, ["x" * (MAX_PAYLOAD + 1)]),
            batch.bus.seal(held.ref, EMPTY_HEAD, 1, "☃" * (MAX_PAYLOAD // 3 + 1), "", ""),
        ):
            with pytest.raises(InputError, match="store it as an artifact"):
                await send
    assert (await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["x" * MAX_PAYLOAD])).verb is Verb.COMMIT


# --- seal -------------------------------------------------------------------------------------------------


async def test_a_seal_ends_the_run_asks_for_its_score_and_acknowledges_in_one_step(batch: Batch) -> None:
    """Between done and acknowledged there is no moment in which a death could lose or repeat the run."""
    held = await batch.claimed()
    await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["one"])
    parent = next_head(EMPTY_HEAD, "one")
    decision = await batch.bus.seal(held.ref, parent, 2, "answer", "t" * 64, "a" * 64)
    assert decision.answer == {"head": next_head(parent, "answer")}
    assert await batch.pending(Group.WORKER) == {}
    assert held.ref.run not in await batch.waiting(Group.WORKER)
    row = await batch.row(held.ref.run)
    assert (row["state"], row["tree"], row["artifact"]) == ("sealed", "t" * 64, "a" * 64)
    (asked,) = await batch.bus.read(Group.SCORER, S1, [batch.name], 10, 1)
    assert (asked.run, asked.id) == (held.ref.run, row["entry"])
    (record,) = await batch.history("run.seal")
    assert record.verbs == (
        "transcript.append commit",
        "transcript.seal commit",
        "workspace.record commit",
        "plane.write commit",
    )


async def test_a_late_seal_leaves_its_successors_message_alone(batch: Batch) -> None:
    """The worker was stopped for longer than its lease, and wakes up with a finished answer. The run is another's."""
    late = await batch.claimed(W1)
    await batch.taken(late.entry, W2)
    live = await batch.claimed(W2, late.entry)
    async with batch.unchanged():
        assert refused(await batch.seal(late)) == "reject stale_gen (transcript.append)"
    assert await batch.pending(Group.WORKER) == {live.entry.id: W2}
    assert [letter["payload"] for letter in await batch.dead()] == ["answer"]
    assert (await batch.seal(live, "another")).verb is Verb.COMMIT
    assert [event.payload for event in await batch.bus.transcript(batch.name, live.ref.run)] == ["another"]


async def test_a_refusal_is_recorded_with_the_command_as_it_was_presented(batch: Batch) -> None:
    """What the late worker said is evidence: which lease it believed in, and the answer that came too late."""
    late = await batch.claimed()
    await batch.claimed(W1, late.entry)
    await batch.seal(late, "too late")
    *_, (_, record) = await batch.wire.call("XRANGE", batch.keys.history, "-", "+")
    fields = dict(zip(record[::2], record[1::2], strict=True))
    envelope = decode(fields[b"e"])
    presented = {"run": late.ref.run, "lease_id": late.ref.lease_id, "gen": 1, "seq": 1, "parent": EMPTY_HEAD}
    assert envelope.items() >= {"schema": 1, "plane": "live", "batch": batch.name, **presented}.items()
    assert fields[b"x2"] == b"too late"
    ((by, verb, reason, *_),) = msgpack.unpackb(fields[b"p"])
    assert (by, verb, reason) == ("transcript.append", "reject", "stale_gen")


async def test_a_seal_takes_its_message_off_whoever_has_it(batch: Batch) -> None:
    """Another took it over but has not claimed: the lease is what counts, and there is nothing left to claim."""
    held = await batch.claimed(W1)
    await batch.taken(held.entry, W2)
    assert (await batch.seal(held)).verb is Verb.COMMIT
    assert await batch.pending(Group.WORKER) == {}
    assert refused(await batch.bus.claim(held.entry, batch.lease(), W2)) == "reject not_owner (run.claim)"


async def test_a_seal_over_a_wrong_prefix_ends_nothing(batch: Batch) -> None:
    """The holder keeps its lease and its message."""
    held = await batch.claimed()
    async with batch.unchanged():
        decision = await batch.bus.seal(held.ref, next_head(EMPTY_HEAD, "other"), 1, "answer", "", "")
    assert refused(decision) == "reject forged_prefix (transcript.append)"
    assert (await batch.seal(held)).verb is Verb.COMMIT


async def test_two_answers_under_one_lease_are_one(batch: Batch) -> None:
    """The second is told that the run is sealed, by the head of the first."""
    held = await batch.claimed()
    first = await batch.seal(held, "one")
    async with batch.unchanged():
        second = await batch.seal(held, "two")
    assert (second.verb, second.answer) == (Verb.DUPLICATE, first.answer)


# --- yield ------------------------------------------------------------------------------------------------


async def test_a_run_that_was_handed_back_is_there_at_once_for_the_next(batch: Batch) -> None:
    """A new message, the old one acknowledged, the lease gone: nobody waits for anything to run out."""
    held = await batch.claimed()
    await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["one"])
    assert (await batch.bus.give_back(held.ref)).verb is Verb.COMMIT
    row = await batch.row(held.ref.run)
    assert (row["state"], row["attempts"]) == ("queued", "0")
    assert row["entry"] != held.entry.id
    assert await batch.pending(Group.WORKER) == {}
    for _ in range(2):
        await batch.claimed(W2)
    next_one = await batch.claimed(W2)
    assert (next_one.ref.run, next_one.ref.gen, next_one.decision.answer["length"]) == (held.ref.run, 2, 1)


async def test_handing_back_twice_is_handing_back_once(batch: Batch) -> None:
    """Also when the successor has claimed meanwhile: it is not its lease that ends."""
    held = await batch.claimed()
    await batch.bus.give_back(held.ref)
    async with batch.unchanged():
        assert (await batch.bus.give_back(held.ref)).verb is Verb.DUPLICATE


async def test_hand_backs_never_make_a_run_poison(server: Target) -> None:
    """Workers that are told to stop say nothing about the run."""
    async with opened(server.address(), runs=1, max_deliveries=1) as batch:
        await batch.admit()
        for _ in range(5):
            held = await batch.claimed()
            await batch.bus.give_back(held.ref)
        assert (await batch.seal(await batch.claimed())).verb is Verb.COMMIT


async def test_a_run_that_is_handed_back_over_and_over_is_taken_for_what_makes_its_workers_stop(server: Target) -> None:
    """A solver that sends its worker SIGTERM: from the 21st time on each is a death, its message stays with it.

    So the next holder gets it as one that somebody had before, and drives it alone.
    """
    async with opened(server.address(), runs=1, max_deliveries=2) as batch:
        await batch.admit()
        for _ in range(20):
            await batch.bus.give_back((await batch.claimed()).ref)
        held = await batch.claimed()
        for attempts in (1, 2):
            assert (await batch.bus.give_back(held.ref)).verb is Verb.COMMIT
            async with batch.unchanged():
                assert (await batch.bus.give_back(held.ref)).verb is Verb.DUPLICATE
            row = await batch.row(held.ref.run)
            assert (row["state"], row["attempts"], row["entry"]) == ("queued", str(attempts), held.entry.id)
            assert await batch.pending(Group.WORKER) == {held.entry.id: W1}
            if attempts == 1:
                held = await batch.claimed(W1, held.entry)
        late = await batch.bus.claim(held.entry, LeaseId("late"), W1)
        assert refused(late) == "reject poison (run.claim)"


async def test_a_fenced_holder_cannot_hand_back_what_it_no_longer_has(batch: Batch) -> None:
    """It would emit a second message, and acknowledge its successor's."""
    late = await batch.claimed(W1)
    await batch.taken(late.entry, W2)
    live = await batch.claimed(W2, late.entry)
    async with batch.unchanged():
        assert refused(await batch.bus.give_back(late.ref)) == "reject stale_lease (run.yield)"
    assert await batch.pending(Group.WORKER) == {live.entry.id: W2}


# --- hole -------------------------------------------------------------------------------------------------


async def test_a_run_that_cannot_go_on_ends_as_a_named_hole(batch: Batch) -> None:
    """Recorded, ended, not retried: lease gone, place back, result out, message off."""
    held = await batch.claimed()
    assert (await batch.bus.hole(held.ref, "solver_error", "ValueError: boom")).verb is Verb.COMMIT
    (row,) = await batch.bus.rows(batch.name, [held.ref.run])
    assert (row.state, row.hole, row.detail) == ("hole", "solver_error", "ValueError: boom")
    counters = await batch.bus.counters(batch.name)
    assert (counters.hole_reasons, counters.in_flight) == ({"solver_error": 1}, 2)
    assert await batch.pending(Group.WORKER) == {}
    woken = await batch.bus.read(Group.PLANNER, P1, [batch.name], 10, 1)
    assert [entry.run for entry in woken] == [held.ref.run]


async def test_a_hole_has_one_reason(batch: Batch) -> None:
    """The same again is a duplicate; another one comes too late. Ends are final."""
    held = await batch.claimed()
    await batch.bus.hole(held.ref, "solver_error", "boom")
    async with batch.unchanged():
        assert (await batch.bus.hole(held.ref, "solver_error", "boom")).verb is Verb.DUPLICATE
        assert refused(await batch.bus.hole(held.ref, "solver_timeout", "")) == "reject stale_lease (run.hole)"
        assert refused(await batch.seal(held)) == "reject stale_gen (transcript.append)"


async def test_a_fenced_holder_cannot_end_its_successors_run(batch: Batch) -> None:
    """Its solver crashed; the successor's may not."""
    late = await batch.claimed()
    await batch.claimed(W1, late.entry)
    async with batch.unchanged():
        assert refused(await batch.bus.hole(late.ref, "solver_error", "boom")) == "reject stale_lease (run.hole)"


@pytest.mark.parametrize("claims", [0, 1])
async def test_an_operator_ends_the_generation_that_he_names(batch: Batch, claims: int) -> None:
    """He has no lease. Naming the generation keeps him from ending a later one than he has seen."""
    held = [await batch.claimed() for _ in range(claims)]
    run = batch.runs[0]
    for wrong in (claims + 1, claims + 7):
        async with batch.unchanged():
            ref = Ref(batch.name, run, LeaseId(""), Gen(wrong))
            assert refused(await batch.bus.hole(ref, "operator", "")) == "reject stale_lease (run.hole)"
    ref = Ref(batch.name, run, LeaseId(""), Gen(claims))
    assert (await batch.bus.hole(ref, "operator", "")).verb is Verb.COMMIT
    async with batch.unchanged():
        assert (await batch.bus.hole(ref, "operator", "")).verb is Verb.DUPLICATE
        for one in held:
            assert refused(await batch.seal(one)) == "reject stale_gen (transcript.append)"
    assert run not in await batch.waiting(Group.WORKER)


async def test_a_sealed_run_is_no_longer_its_workers_to_end(batch: Batch) -> None:
    """Nor the operator's under the worker's generation: it is the scorer's epoch that would have to be named."""
    held = await batch.sealed()
    for ref in (held.ref, replace(held.ref, lease_id=LeaseId(""))):
        async with batch.unchanged():
            assert refused(await batch.bus.hole(ref, "solver_error", "")) == "reject stale_lease (run.hole)"


async def test_what_an_ended_run_says_of_itself_is_cut_to_size(batch: Batch) -> None:
    """A traceback may be as long as it likes; a row is read with a thousand others."""
    held = await batch.claimed()
    await batch.bus.hole(held.ref, "solver_error", "☃" * 5_000)
    (row,) = await batch.bus.rows(batch.name, [held.ref.run])
    assert row.detail == "☃" * 2_000
