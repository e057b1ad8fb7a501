"""The planner's steps on a real server: declare, admit, abandon, emit anew, give places back, close.

Any number of planners may run, none of them remembers anything, and each may be told the same thing twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from bus.calling import call
from bus.errors import InputError
from bus.port import BatchStatus, Group, Held, NextRuns, Ref
from bus.redis_bus import RedisBus
from bus.scripts import script
from bus.target import Target
from bus.types import BatchId, EntryId, Gen, LeaseId, RunId, Verb
from tests.batches import P1, W1, W2, Batch, FixedDoor, opened, refused
from tests.fleet import eventually
from tests.waiting import soon
from workers.runtime import SystemRuntime


@pytest.fixture
async def batch(server: Target) -> AsyncIterator[Batch]:
    """Three runs, nothing admitted yet."""
    async with opened(server.address()) as one:
        yield one


# --- create -----------------------------------------------------------------------------------------------


async def test_a_declared_batch_is_open_and_listed(batch: Batch) -> None:
    """Roles find it in the shard's list; its groups exist before the first of them looks."""
    assert await batch.bus.batches() == [batch.name]
    counters = await batch.bus.counters(batch.name)
    assert (counters.status, counters.intended, counters.cursor) == (BatchStatus.OPEN, 3, 0)
    assert counters.bins == {"pass": 0, "fail": 0}
    for group in Group:
        assert await batch.bus.undelivered(batch.name, group) == 0


async def test_the_same_declaration_again_is_a_duplicate(batch: Batch) -> None:
    """`run` was called again to resume. Where its copy of the suite lies is no part of what a batch is."""
    info = await batch.bus.info(batch.name)
    assert info is not None
    async with batch.unchanged():
        decision = await batch.bus.create(replace(batch.spec, suite_path="/elsewhere"))
    assert decision.verb is Verb.DUPLICATE
    assert decision.answer["incarnation"] == info.incarnation


@pytest.mark.parametrize("change", [{"suite_digest": "e" * 64}, {"quorum": 2}, {"bins": ("pass",)}], ids=str)
async def test_another_declaration_under_the_same_name_is_refused(batch: Batch, change: dict[str, object]) -> None:
    """A batch is what it was declared to be, or its number means nothing."""
    async with batch.unchanged():
        decision = await batch.bus.create(replace(batch.spec, **change))  # type: ignore[arg-type]
    assert refused(decision) == "reject batch_mismatch (run.create)"


@pytest.mark.parametrize("bins", ["", "{", "[]", "[1]", '[""]', "3", '{"a": 1}'])
async def test_a_declaration_without_readable_bins_is_refused(batch: Batch, bins: str) -> None:
    """It comes as text, so it may be anything. Refused before the first write, not raised after it."""
    async with batch.unchanged():
        decision = await batch.bus._step(
            "create", batch.name, declared="x", incarnation="x", bins=bins, intended=1, quorum=1, bound=1,
            max_in_flight=1, max_deliveries=1, reclaim_ms=1, judge_policy="reject", replay_budget=0, spec="{}",
        )  # fmt: skip
    assert refused(decision) == "reject schema (run.create)"


async def test_a_batch_that_was_never_declared_is_not_there(batch: Batch) -> None:
    """A refused command for it is counted, but a count makes no batch."""
    await batch.bus.close(BatchId("other"), "x", 0)
    assert await batch.bus.info(BatchId("other")) is None
    with pytest.raises(InputError, match="no batch 'other'"):
        await batch.bus.counters(BatchId("other"))
    other = batch.bus.keys(BatchId("other"))
    await batch.wire.call("DEL", other.batch_row, other.history)


# --- admit ------------------------------------------------------------------------------------------------


async def test_runs_are_admitted_in_order_and_the_batch_drains_with_the_last(batch: Batch) -> None:
    """One message a run, named in its row; the cursor says how far the suite has been read."""
    first = await batch.admit(2)
    assert first.answer == {"admitted": 2, "cursor": 2, "why_stopped": "none"}
    assert await batch.batch_field("status") == "open"
    last = await batch.admit(1)
    assert last.answer == {"admitted": 1, "cursor": 3, "why_stopped": "drained"}
    assert await batch.batch_field("status") == "drained"
    assert await batch.waiting(Group.WORKER) == batch.runs
    assert await batch.bus.run_ids(batch.name) == batch.runs
    assert [row.state for row in await batch.bus.rows(batch.name, batch.runs)] == ["queued"] * 3


async def test_no_more_runs_are_admitted_than_the_bound_allows(server: Target) -> None:
    """What is admitted takes a place until it ends. A planner that asks for more gets what there is room for."""
    async with opened(server.address(), runs=5, bound=2) as batch:
        assert (await batch.admit()).answer == {"admitted": 2, "cursor": 2, "why_stopped": "bound_full"}
        async with batch.unchanged():
            assert refused(await batch.admit()) == "reject bound_full (admission.acquire)"
        await batch.end(batch.runs[0])
        assert (await batch.admit()).answer == {"admitted": 1, "cursor": 3, "why_stopped": "bound_full"}


async def test_two_planners_that_wake_up_together_admit_each_run_once(batch: Batch) -> None:
    """Both have read the same cursor. The slower one finds it moved, and is told where it stands."""
    decisions = await asyncio.gather(
        *(batch.bus.admit(batch.name, NextRuns(0, batch.runs[:2], [], P1, "candidate", "judge")) for _ in range(2))
    )
    assert sorted(decision.verb for decision in decisions) == [Verb.COMMIT, Verb.DUPLICATE]
    assert {decision.answer["cursor"] for decision in decisions} == {2}
    assert await batch.waiting(Group.WORKER) == batch.runs[:2]


async def test_two_planners_do_not_pass_the_bound_together(server: Target) -> None:
    """Each alone would find room for two."""
    async with opened(server.address(), runs=4, bound=2) as batch:
        await asyncio.gather(batch.admit(), batch.admit())
        assert len(await batch.waiting(Group.WORKER)) == 2
        assert (await batch.bus.counters(batch.name)).in_flight == 2


async def test_an_admission_takes_the_wake_ups_off_that_led_to_it(batch: Batch) -> None:
    """They were read, the planner acted on them; left pending, they would wake the next planner for nothing."""
    await batch.admit(1)
    await batch.end(batch.runs[0])
    woken = await batch.bus.read(Group.PLANNER, P1, [batch.name], 10, 1)
    assert [entry.run for entry in woken] == [batch.runs[0]]
    await batch.admit(1, woken)
    assert await batch.waiting(Group.PLANNER) == []


async def test_an_admission_of_nothing_only_takes_wake_ups_off(batch: Batch) -> None:
    """No room, or nothing left: that is no decision, so it leaves no record."""
    await batch.admit()
    await batch.end(batch.runs[0])
    woken = await batch.bus.read(Group.PLANNER, P1, [batch.name], 10, 1)
    records = len(await batch.history())
    decision = await batch.admit(0, woken)
    assert decision.answer == {"admitted": 0, "cursor": 3, "why_stopped": "none"}
    assert await batch.waiting(Group.PLANNER) == []
    assert await batch.pending(Group.PLANNER) == {}
    assert len(await batch.history()) == records


async def test_a_planner_of_an_old_cursor_is_told_the_present_one(batch: Batch) -> None:
    """It slept while another went on; what it wanted to admit has been admitted."""
    await batch.admit()
    async with batch.unchanged():
        decision = await batch.bus.admit(batch.name, NextRuns(1, batch.runs[1:2], [], P1, "candidate", "judge"))
    assert (decision.verb, decision.answer) == (Verb.DUPLICATE, {"cursor": 3})


async def test_more_runs_than_were_declared_are_refused(batch: Batch) -> None:
    """The suite on this planner's disk has more cases than the one that the batch was declared with."""
    more = [*batch.runs, RunId("c3#1")]
    async with batch.unchanged():
        decision = await batch.bus.admit(batch.name, NextRuns(0, more, [], P1, "candidate", "judge"))
    assert refused(decision) == "reject schema (run.admit)"


async def test_a_run_that_is_named_twice_is_refused(batch: Batch) -> None:
    """One row, two messages, two places at the desk: the batch could never close."""
    async with batch.unchanged():
        decision = await batch.bus.admit(batch.name, NextRuns(0, batch.runs[:1] * 2, [], P1, "candidate", "judge"))
    assert refused(decision) == "reject schema (run.admit)"


async def test_a_run_that_was_admitted_before_is_refused(batch: Batch) -> None:
    """The list of cases has changed its order since: what stands at the cursor now was admitted under another place."""
    await batch.admit(1)
    async with batch.unchanged():
        decision = await batch.bus.admit(batch.name, NextRuns(1, batch.runs[:1], [], P1, "candidate", "judge"))
    assert refused(decision) == "reject duplicate_key (plane.admit)"


@pytest.mark.parametrize("entry", ["", "x", "1", "1-", "1-x", "99999999999999999999-0", "0-99999999999999999999"])
async def test_a_wake_up_that_is_no_entry_is_refused_before_anything_is_written(batch: Batch, entry: str) -> None:
    """The server raises on such an id, and a script that raises after its first write leaves half of itself behind."""
    await batch.admit(1)
    await batch.end(batch.runs[0])
    (woken,) = await batch.bus.read(Group.PLANNER, P1, [batch.name], 10, 1)
    async with batch.unchanged():
        decision = await batch.admit(1, [replace(woken, id=EntryId(entry))])
    assert refused(decision) == "reject schema (run.admit)"


async def test_a_hundred_runs_are_admitted_at_once_and_no_more(server: Target) -> None:
    """A script's work is bounded; the planner comes again for the rest."""
    async with opened(server.address(), runs=101, bound=101) as batch:
        assert (await batch.admit()).answer == {"admitted": 100, "cursor": 100, "why_stopped": "none"}
        assert (await batch.admit()).answer["why_stopped"] == "drained"


@pytest.mark.parametrize("room", [2, 64])
async def test_a_read_that_waits_is_given_what_a_step_admits_together(batch: Batch, room: int) -> None:
    """Given one and then the others, it would have two steps made where one would do. It has room for so many."""
    reading = asyncio.create_task(batch.bus.read(Group.WORKER, W1, [batch.name], room, 60_000))
    while "flags=b" not in (await batch.wire.call("CLIENT", "LIST")).decode():
        await asyncio.sleep(0)
    await batch.admit()
    assert [entry.run for entry in await soon(reading)] == batch.runs[:room]


# --- abandon ----------------------------------------------------------------------------------------------


async def test_runs_that_are_never_admitted_become_named_holes(batch: Batch) -> None:
    """The budget is gone. What is missing says why, and a planner is woken to close over it."""
    await batch.admit(1)
    decision = await batch.bus.abandon(batch.name, 1, batch.runs[1:], "budget")
    assert decision.answer == {"abandoned": 2, "cursor": 3}
    counters = await batch.bus.counters(batch.name)
    assert (counters.status, counters.holes, counters.hole_reasons) == (BatchStatus.DRAINED, 2, {"budget": 2})
    assert await batch.waiting(Group.PLANNER) == batch.runs[1:]


async def test_abandoning_twice_is_a_duplicate(batch: Batch) -> None:
    """Sent again, or sent by two: the cursor has moved."""
    await batch.bus.abandon(batch.name, 0, batch.runs[:1], "budget")
    async with batch.unchanged():
        decision = await batch.bus.abandon(batch.name, 0, batch.runs[:1], "budget")
    assert (decision.verb, decision.answer) == (Verb.DUPLICATE, {"cursor": 1})


async def test_a_run_that_was_admitted_cannot_be_abandoned(batch: Batch) -> None:
    """It may have a holder. Its end is `hole`, which takes the lease away."""
    await batch.admit(1)
    for runs in ([batch.runs[0]], [batch.runs[1], batch.runs[1]], [*batch.runs, RunId("c3#1")]):
        async with batch.unchanged():
            decision = await batch.bus.abandon(batch.name, 1, runs, "budget")
        assert refused(decision) == "reject schema (run.abandon)"


async def test_a_run_that_was_abandoned_cannot_be_admitted(batch: Batch) -> None:
    """Ends are final."""
    await batch.bus.abandon(batch.name, 0, batch.runs[:1], "budget")
    async with batch.unchanged():
        decision = await batch.bus.admit(batch.name, NextRuns(1, batch.runs[:1], [], P1, "candidate", "judge"))
    assert refused(decision) == "reject schema (run.admit)"


# --- what got lost ----------------------------------------------------------------------------------------


async def test_a_message_that_its_group_still_knows_is_not_emitted_anew(any_server: Target) -> None:
    """Not read yet, or in somebody's hands: it will be handled or taken over. A second one would be in the way."""
    async with opened(any_server.address()) as batch:
        await batch.admit(2)
        read = await batch.delivered()
        unread = RunId("c1#1")
        for run in (read.run, unread):
            entry = EntryId((await batch.row(run))["entry"])
            async with batch.unchanged():
                decision = await batch.bus.requeue(batch.name, Group.WORKER, run, entry)
            assert refused(decision) == "reject still_known (run.requeue)"


async def test_a_message_that_its_group_has_forgotten_is_emitted_anew(any_server: Target) -> None:
    """The group was recreated behind it: delivered to nobody, and nobody would ever be given it.

    The row names the new message from then on, so the old one takes nothing from it should it come back.
    """
    async with opened(any_server.address(), runs=1) as batch:
        await batch.admit()
        lost = await batch.delivered()
        runs = batch.keys.stream("runs")
        await batch.wire.call("XGROUP", "DESTROY", runs, "worker")
        await batch.wire.call("XGROUP", "CREATE", runs, "worker", "$")
        assert await batch.bus.undelivered(batch.name, Group.WORKER) == 0
        decision = await batch.bus.requeue(batch.name, Group.WORKER, lost.run, lost.id)
        assert decision.answer["entry"] == (await batch.row(lost.run))["entry"] != lost.id
        again = await batch.bus.requeue(batch.name, Group.WORKER, lost.run, lost.id)
        assert again.verb is Verb.DUPLICATE
        back = await batch.forged(lost.run, W2)
        assert refused(await batch.bus.claim(back, batch.lease(), W2)) == "reject duplicate_entry (run.claim)"
        entry = EntryId(decision.answer["entry"])
        held = await batch.bus.own_pending(Group.WORKER, W2, [batch.name], 10)
        assert [one.id for one in held] == [entry]
        assert (await batch.bus.claim(held[0], batch.lease(), W2)).verb is Verb.COMMIT


async def test_a_score_message_that_got_lost_is_emitted_anew(batch: Batch) -> None:
    """The same for the other stream; a run waits in one of the two, and only there can its message be missing."""
    await batch.admit(1)
    held = await batch.sealed()
    entry = EntryId((await batch.row(held.ref.run))["entry"])
    assert refused(await batch.bus.requeue(batch.name, Group.WORKER, held.ref.run, entry)) == (
        "reject ended (run.requeue)"
    )
    await batch.wire.call("XDEL", batch.keys.stream("scores"), entry)
    assert (await batch.bus.requeue(batch.name, Group.SCORER, held.ref.run, entry)).verb is Verb.COMMIT
    assert (await batch.scoring()).ref.run == held.ref.run


async def test_a_run_that_has_ended_waits_for_no_message(batch: Batch) -> None:
    """The planner's list of rows is a moment old."""
    await batch.admit(1)
    entry = EntryId((await batch.row(batch.runs[0]))["entry"])
    await batch.end(batch.runs[0])
    async with batch.unchanged():
        decision = await batch.bus.requeue(batch.name, Group.WORKER, batch.runs[0], entry)
    assert refused(decision) == "reject ended (run.requeue)"


async def test_a_group_that_is_gone_is_made_again_with_all_that_was_not_handled(any_server: Target) -> None:
    """A failover lost it. Gone is not empty: handled messages are deleted, so a group from 0 is given just the rest.

    Who held a lease goes on while his message is delivered a second time; the next claim fences him, as after a death.
    """
    async with opened(any_server.address(), runs=3) as batch:
        await batch.admit()
        await batch.sealed()
        held = await batch.claimed()
        await batch.wire.call("XGROUP", "DESTROY", batch.keys.stream("runs"), "worker")
        assert refused(await batch.bus.claim(held.entry, batch.lease(), W2)) == "reject not_owner (run.claim)"
        entries = await batch.bus.read(Group.WORKER, W2, [batch.name], 10, 1)
        assert [entry.run for entry in entries] == batch.runs[1:]
        assert (await batch.claimed(W2, entries[0])).ref.gen == 2
        assert refused(await batch.seal(held)) == "reject stale_gen (transcript.append)"


async def test_an_unreadable_message_goes_to_the_dead_letters_and_its_run_is_emitted_anew(batch: Batch) -> None:
    """Delivered for ever otherwise. It is kept whole; the run that it belonged to is found by its row."""
    await batch.admit(1)
    entry = EntryId((await batch.row(batch.runs[0]))["entry"])
    stream = batch.keys.stream("runs")
    await batch.wire.call("XDEL", stream, entry)
    await batch.wire.call("XADD", stream, "*", "nonsense", b"\xff")
    bad = await batch.delivered()
    assert bad.run == ""
    await batch.bus.dead_letter(bad, W1, "unreadable")
    (letter,) = await batch.dead()
    assert (letter["reason"], letter["entry"], letter["content"]) == ("unreadable", bad.id, '{"nonsense": "\\ufffd"}')
    assert await batch.pending(Group.WORKER) == {}
    assert (await batch.bus.requeue(batch.name, Group.WORKER, batch.runs[0], entry)).verb is Verb.COMMIT
    assert (await batch.claimed()).ref.run == batch.runs[0]


async def test_a_message_deleted_while_it_was_pending_is_a_dead_letter_too(batch: Batch) -> None:
    """It comes back without any content: that must not crash who reads it."""
    await batch.admit(1)
    entry = await batch.delivered()
    await batch.wire.call("XDEL", batch.keys.stream("runs"), entry.id)
    (empty,) = await batch.bus.own_pending(Group.WORKER, W1, [batch.name], 10)
    assert (empty.run, empty.fields) == ("", {})
    await batch.bus.dead_letter(empty, W1, "unreadable")
    assert await batch.pending(Group.WORKER) == {}
    assert (await batch.bus.requeue(batch.name, Group.WORKER, entry.run, entry.id)).verb is Verb.COMMIT


async def test_only_the_owner_of_a_message_may_bury_it(batch: Batch) -> None:
    """A slow reader's message is another's by now, and that one may be able to read it."""
    await batch.admit(1)
    entry = await batch.taken(await batch.delivered(), W2)
    async with batch.unchanged():
        await batch.bus.dead_letter(entry, W1, "unreadable")
    assert await batch.refusals() == {"not_owner": 1}
    assert await batch.dead() == []


# --- sweep ------------------------------------------------------------------------------------------------


async def test_a_sweep_without_expired_places_decides_nothing(batch: Batch) -> None:
    """It is made each lease time, so it must cost next to nothing and leave no record."""
    await batch.admit()
    records = await batch.history()
    assert (await batch.bus.sweep(batch.name, 50)).answer == {"freed": 0}
    assert await batch.history() == records


async def test_an_expired_place_is_given_back_once_and_not_before_its_time(server: Target) -> None:
    """The request may still be out there; its place is free when nothing can come back any more."""
    batch = await Batch.open(server.address(), runs=2, bound=1)
    await batch.admit(1)
    lease = (await batch.row(batch.runs[0]))["place"]
    await _clock(batch, 1_000)
    await _expire(batch, lease, batch.runs[0])
    assert (await batch.bus.sweep(batch.name, 50)).answer == {"freed": 0}
    await _clock(batch, 1_000 + batch.spec.reclaim_ms - 1)
    assert (await batch.bus.sweep(batch.name, 50)).answer == {"freed": 0}
    assert refused(await batch.admit(1)) == "reject bound_full (admission.acquire)"
    await _clock(batch, 1_000 + batch.spec.reclaim_ms)
    assert (await batch.bus.sweep(batch.name, 50)).answer == {"freed": 1}
    assert (await batch.bus.sweep(batch.name, 50)).answer == {"freed": 0}
    assert (await batch.bus.counters(batch.name)).in_flight == 0
    assert (await batch.admit(1)).verb is Verb.COMMIT
    await batch.aclose()


async def _clock(batch: Batch, ms: int) -> None:
    """Give the batch a clock of its own, as a vector has."""
    await batch.wire.call("HSET", batch.keys.batch_row, "clock", ms)


async def _expire(batch: Batch, lease: str, run: RunId) -> None:
    """What gives a desk's lease up: the fence's own operation."""
    scope = {**batch.bus._scope(batch.name), "run": batch.keys.run(run)}
    target = script("admission.expire")
    envelope = batch.bus._envelope(batch.name, "", {"lease": lease, "step": run})
    decision = await call(batch.wire, target, {key: scope[key] for key in target.keys}, {"envelope": envelope})
    assert not isinstance(decision, list)
    assert decision.verb is Verb.COMMIT


# --- close ------------------------------------------------------------------------------------------------


async def test_a_batch_does_not_close_before_every_run_was_admitted(batch: Batch) -> None:
    """At the quorum alone the fast runs would be kept and the slow ones dropped."""
    await batch.admit(1)
    await batch.scored()
    async with batch.unchanged():
        decision = await batch.bus.close(batch.name, "snapshot", 1)
    assert refused(decision) == "in_doubt not_drained (histogram.close)"


async def test_a_batch_does_not_close_while_a_run_is_under_way(batch: Batch) -> None:
    """Held, sealed or being judged: its score would come after the number."""
    await batch.admit()
    await batch.scored()
    await batch.sealed()
    async with batch.unchanged():
        decision = await batch.bus.close(batch.name, "snapshot", 1)
    assert refused(decision) == "in_doubt in_flight (histogram.close)"


async def _ended(batch: Batch, scored: int) -> None:
    await batch.admit()
    for n, run in enumerate(batch.runs):
        if n < scored:
            await batch.scored()
        else:
            await batch.end(run)


async def test_a_batch_closes_over_the_snapshot_that_counts_all_its_scores(batch: Batch) -> None:
    """Whoever read the rows before the last one ended reads them again; afterwards no role finds the batch open."""
    await _ended(batch, 2)
    async with batch.unchanged():
        assert refused(await batch.bus.close(batch.name, "short", 1)) == "in_doubt in_flight (histogram.close)"
    decision = await batch.bus.close(batch.name, "snapshot", 2)
    assert decision.answer == {"snapshot_id": "snapshot", "accepted": 2}
    counters = await batch.bus.counters(batch.name)
    assert (counters.status, counters.snapshot_id) == (BatchStatus.CLOSED, "snapshot")
    assert await batch.bus.batches() == []
    assert await batch.bus.all_batches() == {batch.name: BatchStatus.CLOSED}


async def test_a_second_planner_that_closes_gets_the_first_ones_snapshot(batch: Batch) -> None:
    """Both computed it; there is one number."""
    await _ended(batch, 2)
    await batch.bus.close(batch.name, "snapshot", 2)
    async with batch.unchanged():
        decision = await batch.bus.close(batch.name, "another", 2)
    assert (decision.verb, decision.answer["snapshot_id"]) == (Verb.DUPLICATE, "snapshot")


async def test_a_batch_below_its_quorum_ends_without_a_number(server: Target) -> None:
    """Inconclusive is an end too: the roles leave, and asking again does not help."""
    async with opened(server.address(), quorum=3) as batch:
        await _ended(batch, 2)
        for _ in range(2):
            decision = await batch.bus.close(batch.name, "snapshot", 2)
            assert refused(decision) == "reject below_quorum (histogram.close)"
            assert await batch.bus.all_batches() == {batch.name: BatchStatus.INCONCLUSIVE}
        assert (await batch.bus.counters(batch.name)).snapshot_id is None


@pytest.mark.parametrize("quorum", [1, 3], ids=["closed", "inconclusive"])
async def test_nothing_moves_a_batch_that_has_ended(server: Target, quorum: int) -> None:
    """Late copies of every kind: each is refused or a duplicate, and the set behind the number is what it was."""
    async with opened(server.address(), quorum=quorum) as batch:
        await batch.admit()
        held = await batch.claimed()
        await batch.seal(held)
        scoring = await batch.scoring()
        await batch.bus.score(scoring.ref, scoring.judgement)
        fenced = await batch.claimed()
        for run in batch.runs[1:]:
            await batch.end(run)
        await batch.bus.close(batch.name, "snapshot", 1)
        run_entry = await batch.forged(held.ref.run)
        score_entry = await batch.forged(held.ref.run, group=Group.SCORER)
        assert refused(await batch.bus.claim(run_entry, batch.lease(), W1)) == "reject ended (run.claim)"
        assert refused(await batch.bus.score_claim(score_entry, batch.lease(), W1)) == "reject ended (run.score_claim)"
        async with batch.unchanged():
            assert refused(await batch.seal(fenced)) == "reject stale_gen (transcript.append)"
            assert refused(await batch.bus.hole(fenced.ref, "late", "")) == "reject stale_lease (run.hole)"
            late = Ref(batch.name, held.ref.run, LeaseId("S"), Gen(1))
            assert refused(await batch.bus.score(late, scoring.judgement)) == "reject stale_lease (run.score)"
            assert (await batch.seal(held)).verb is Verb.DUPLICATE
            assert (await batch.bus.score(scoring.ref, scoring.judgement)).verb is Verb.DUPLICATE
            assert refused(await batch.admit(0)) == "reject after_close (run.admit)"
            assert refused(await batch.bus.abandon(batch.name, 3, [RunId("x#1")], "late")) == (
                "reject after_close (run.abandon)"
            )
            rebound = await batch.bus.rebind(batch.name, held.ref.run, 1, "candidate", "judge")
            assert refused(rebound) == "reject after_close (run.rebind)"


# --- one life ---------------------------------------------------------------------------------------------


async def test_a_batch_lives_from_its_declaration_to_its_number_on_every_server(any_server: Target) -> None:
    """Every step once: scored, given back, ended by its holder, ended as poison, and closed over all of them."""
    async with opened(any_server.address(), runs=4, bound=2, max_deliveries=1) as batch:
        await batch.admit()
        await batch.scored()
        first = await batch.claimed()
        await batch.bus.give_back(first.ref)
        second = await batch.claimed()
        await batch.bus.heartbeat(Group.WORKER, W1, Held([second.ref]))
        await batch.bus.hole(second.ref, "solver_error", "boom")
        await batch.admit()
        third = await batch.claimed()
        await batch.taken(third.entry, W2)
        assert refused(await batch.bus.claim(third.entry, batch.lease(), W2)) == "reject poison (run.claim)"
        await batch.sealed()
        scoring = await batch.scoring()
        await batch.bus.score_give_back(scoring.ref)
        scoring = await batch.scoring()
        await batch.bus.score(scoring.ref, replace(scoring.judgement, bin="fail", value="0"))
        decision = await batch.bus.close(batch.name, "snapshot", 2)
        assert decision.verb is Verb.COMMIT
        counters = await batch.bus.counters(batch.name)
        assert counters.bins == {"pass": 1, "fail": 1}
        assert counters.hole_reasons == {"poison": 1, "solver_error": 1}
        assert counters.in_flight == 0
        for group in (Group.WORKER, Group.SCORER):
            assert await batch.waiting(group) == []


async def test_two_batches_of_one_shard_do_not_touch_each_other(batch: Batch, server: Target) -> None:
    """The same run ids under another name are other runs."""
    bus = RedisBus(FixedDoor(server.address()), SystemRuntime())
    other = replace(batch.spec, batch=BatchId("c"))
    await bus.create(other)
    await bus.admit(other.batch, NextRuns(0, batch.runs, [], P1, "candidate", "judge"))
    await batch.admit()
    entries = await bus.read(Group.WORKER, W1, [batch.name, other.batch], 10, 1)
    assert sorted((entry.batch, entry.run) for entry in entries) == [
        (name, run) for name in (batch.name, other.batch) for run in batch.runs
    ]
    mine, yours = entries[0], entries[3]
    assert (await bus.claim(mine, LeaseId("L"), W1)).answer["gen"] == 1
    assert (await bus.claim(yours, LeaseId("L"), W1)).answer["gen"] == 1
    await bus.aclose()
    for key in [key for key in await batch._keys() if ":b:c:" in key]:
        await batch.wire.call("DEL", key)


async def test_who_has_one_slot_is_given_one_entry_however_many_batches_it_waits_for(
    batch: Batch, server: Target
) -> None:
    """Three batches get a run at one instant: two would be delivered that find no slot, and be claimed by nobody."""
    bus = RedisBus(FixedDoor(server.address()), SystemRuntime())
    names = [batch.name, BatchId("c"), BatchId("d")]
    for name in names[1:]:
        await bus.create(replace(batch.spec, batch=name))
    streams = [bus.keys(name).stream(Group.WORKER.stream) for name in names]
    reading = asyncio.create_task(bus.read(Group.WORKER, W1, names, 1, 600_000))

    async def blocked() -> bool:
        return b"blocked_clients:1" in await batch.wire.call("INFO", "clients")

    await eventually(blocked, "the read to wait at the server")
    await batch.wire.calls([("MULTI",), *(("XADD", stream, "*", "run", "r#1") for stream in streams), ("EXEC",)])
    got = await soon(reading)
    pending = [len(await batch.wire.call("XPENDING", stream, Group.WORKER, "-", "+", 10)) for stream in streams]
    assert (len(got), sum(pending)) == (1, 1)
    others = await bus.read(Group.WORKER, W1, names, 10, 1)
    assert sorted(entry.batch for entry in [*got, *others]) == sorted(names)
    await bus.aclose()
    for key in [key for key in await batch._keys() if ":b:c:" in key or ":b:d:" in key]:
        await batch.wire.call("DEL", key)
