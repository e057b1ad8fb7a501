"""All fences in the path of a run's life: what a claim grants, what the end of a lease and of a run takes away.

A batch that declares nothing meets five fences. One that declares budgets for retries, silence of workspaces, endpoints
and tools meets all twelve, in the same scripts: a step that forgot one of them would leave a place taken for ever, a
workspace that two believe in, or a score over a tree that nobody sealed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from bus.chain import EMPTY_HEAD, next_head
from bus.port import Group, Outcome
from bus.port import Held as Alive
from bus.port_calls import JUDGE_DESK
from bus.target import Target
from bus.types import Digest, Gen, LeaseId, Verb
from tests.batches import W1, W2, Batch, Held, Scoring, opened, refused
from tests.limits import ALL, SILENCE
from tests.model_calls import asked, desk_of, judged
from tests.tool_calls import fan_out

TREE, ARTIFACT = "a" * 64, "b" * 64


@pytest.fixture
async def batch(server: Target) -> AsyncIterator[Batch]:
    """Three runs, admitted, all fences declared; the batch's own clock stands at 1,000."""
    async with opened(server.address(), limits=ALL, reclaim_ms=1_000) as one:
        await at(one, 1_000)
        await one.admit()
        yield one


@pytest.fixture
async def plain(server: Target) -> AsyncIterator[Batch]:
    """Three runs, admitted, none of the fences that can be left out."""
    async with opened(server.address()) as one:
        await one.admit()
        yield one


async def at(batch: Batch, ms: int) -> None:
    """Let the batch's clock stand at `ms`."""
    await batch.wire.call("HSET", batch.keys.batch_row, "clock", ms)


async def succeeded(batch: Batch, held: Held) -> Held:
    """The run in the hands of another worker, who took it for abandoned."""
    return await batch.claimed(W2, await batch.taken(held.entry, W2))


async def calling(batch: Batch, held: Held) -> str:
    """A model call under way; the name of its place."""
    call = asked(held.ref)
    assert (await batch.bus.open_call(held.ref, call)).verb is Verb.COMMIT
    return call.desk_lease


async def verbs(batch: Batch, command: str) -> tuple[str, ...]:
    """The parts of the last record of a command."""
    return (await batch.history(command))[-1].verbs


# --- claim ------------------------------------------------------------------------------------------------


async def test_one_claim_takes_the_run_in_every_fence_under_one_generation(batch: Batch) -> None:
    """Completion, transcript and workspace: a holder that was fenced in one of them only could still do harm."""
    held = await batch.claimed()
    assert await verbs(batch, "run.claim") == (
        "completion.lease commit",
        "transcript.lease commit",
        "sandbox.acquire commit",
    )
    row = await batch.row(held.ref.run)
    assert row["lease"] == row["t.lease"] == row["c.lease"] == held.ref.lease_id
    assert (held.ref.gen, row["t.gen"], row["c.gen"], held.ref.epoch) == (1, "1", "1", 1)
    second = await succeeded(batch, held)
    row = await batch.row(held.ref.run)
    assert row["lease"] == row["t.lease"] == row["c.lease"] == second.ref.lease_id
    assert (second.ref.gen, row["t.gen"], row["c.gen"], second.ref.epoch) == (2, "2", "2", 2)


async def test_a_batch_that_declares_no_fence_does_not_pay_for_it(plain: Batch) -> None:
    """No part, no field: a suite without models and tools is as fast as it was."""
    held = await plain.claimed()
    assert (held.ref.epoch, await verbs(plain, "run.claim")) == (0, ("transcript.lease commit",))
    await plain.bus.give_back(held.ref)
    assert await verbs(plain, "run.yield") == ("transcript.fence commit",)
    row = await plain.row(held.ref.run)
    assert not [field for field in row if field.startswith(("c.", "b.", "l.", "o.", "f.", "i.", "w."))]
    for name in ("model", "judge"):
        assert await plain.wire.call("EXISTS", plain.keys.desk(name)) == 0


async def test_a_claim_that_is_sent_again_tells_the_same_epoch(batch: Batch) -> None:
    """Its answer was lost; a second epoch would void the first one's writes."""
    held = await batch.claimed()
    await at(batch, 2_000)
    async with batch.unchanged():
        again = await batch.bus.claim(held.entry, held.ref.lease_id, W1)
    assert (again.verb, again.answer) == (Verb.DUPLICATE, held.decision.answer)


async def test_a_run_whose_compute_budget_is_used_up_ends_as_a_hole(server: Target) -> None:
    """Fence 4 counts each generation but the first; the claim that finds nothing left ends the run, as for poison."""
    async with opened(server.address(), runs=1, max_deliveries=9, limits=ALL | {"compute_retries": 1}) as batch:
        await batch.admit()
        held = await succeeded(batch, await batch.claimed())
        decision = await batch.bus.claim(held.entry, batch.lease(), W2)
        assert refused(decision) == "reject retries_exhausted (run.claim)"
        (row,) = await batch.bus.rows(batch.name, batch.runs)
        assert (row.hole, row.detail) == ("retries_exhausted", "its compute budget is used up")
        assert await batch.refusals() == {"retries_exhausted": 1}
        assert await batch.waiting(Group.WORKER) == []
        assert await batch.waiting(Group.PLANNER) == batch.runs
        assert (await batch.seal(held)).reason == "stale_gen"


async def test_both_generations_pass_the_floor_that_a_restart_raises(batch: Batch) -> None:
    """What the last life of the server granted is void in 4 as in 7: they are one number."""
    held = await batch.claimed()
    await batch.wire.call("HSET", batch.keys.batch_row, "floor", 70)
    late = asked(held.ref)
    assert refused(await batch.bus.open_call(held.ref, late)) == "reject stale_lease (completion.open)"
    second = await succeeded(batch, held)
    row = await batch.row(held.ref.run)
    assert (second.ref.gen, row["t.gen"], row["c.gen"]) == (71, "71", "71")
    assert await calling(batch, second)


async def test_a_claim_settles_the_calls_that_the_last_holder_left(batch: Batch) -> None:
    """Nobody waits for them any more. The place is given back in time only: the request may still be on its way."""
    held = await batch.claimed()
    place = await calling(batch, held)
    second = await succeeded(batch, held)
    assert await verbs(batch, "run.claim") == (
        "admission.expire commit",
        "completion.lease commit",
        "transcript.lease commit",
        "sandbox.acquire commit",
    )
    assert await desk_of(batch) == {place: "expired"}
    assert second.decision.answer["unresolved"] == [1]
    await at(batch, 1_999)
    assert (await batch.bus.sweep(batch.name, 10, "model")).answer["freed"] == 0
    await at(batch, 2_000)
    assert (await batch.bus.sweep(batch.name, 10, "model")).answer["freed"] == 1
    assert await desk_of(batch) == {}


async def test_a_third_holder_does_not_expire_again_what_is_expired(batch: Batch) -> None:
    """Else each claim would begin the reclaim time anew, and the place would never be free."""
    held = await batch.claimed()
    await calling(batch, held)
    second = await succeeded(batch, held)
    await at(batch, 1_900)
    await succeeded(batch, second)
    assert "admission.expire commit" not in await verbs(batch, "run.claim")
    await at(batch, 2_000)
    assert (await batch.bus.sweep(batch.name, 10, "model")).answer["freed"] == 1


async def test_a_claim_tells_what_was_announced_and_what_was_written(batch: Batch) -> None:
    """The next holder joins the one, and gives the conversation up for the other: that disk is gone."""
    held = await batch.claimed()
    assert (await batch.bus.put_tools(held.ref, fan_out(held.ref, "book"))).verb is Verb.COMMIT
    second = await succeeded(batch, held)
    answer = second.decision.answer
    assert (answer["windows"], answer["unresolved"]) == ([f"{held.ref.run}~0.1"], [1])
    assert (answer["wrote"], answer["turning"], answer["conversation"]) == (False, False, 0)
    written = await batch.bus.write(second.ref, f"{held.ref.run}~0.2.w", "a.txt", Digest("c" * 64), "receipt")
    assert written.verb is Verb.COMMIT
    third = await succeeded(batch, second)
    assert third.decision.answer["wrote"] is True


# --- heartbeat --------------------------------------------------------------------------------------------


async def test_a_beat_keeps_the_workspace_alive_too(batch: Batch) -> None:
    """Silence is counted from the last beat, and ends the workspace's life when it was long enough: not before."""
    held = await batch.claimed()
    for now in (1_000 + SILENCE - 1, 1_000 + 2 * SILENCE - 2):
        await at(batch, now)
        (decision,) = await batch.bus.heartbeat(Group.WORKER, W1, Alive([held.ref]))
        assert decision.verb is Verb.COMMIT
    await at(batch, 1_000 + 3 * SILENCE - 2)
    (decision,) = await batch.bus.heartbeat(Group.WORKER, W1, Alive([held.ref]))
    assert refused(decision) == "reject stale_epoch (sandbox.heartbeat)"
    assert await batch.refusals() == {"stale_epoch": 1}


async def test_a_beat_under_another_epoch_renews_nothing(batch: Batch) -> None:
    """The lease is the right one and the disk is not: its writes are not those that the run stands on."""
    held, other = await batch.claimed(), await batch.claimed()
    stale = replace(held.ref, epoch=7)
    async with batch.unchanged():
        (decision,) = await batch.bus.heartbeat(Group.WORKER, W1, Alive([stale]))
        assert refused(decision) == "reject stale_epoch (sandbox.heartbeat)"
    first, second = await batch.bus.heartbeat(Group.WORKER, W1, Alive([stale, other.ref]))
    assert (first.reason, second.verb) == ("stale_epoch", Verb.COMMIT)


# --- yield and hole -----------------------------------------------------------------------------------------


async def test_a_hand_back_leaves_nothing_live_in_any_fence(batch: Batch) -> None:
    """The next holder must not wait for a lease, a call or a disk of who has gone."""
    held = await batch.claimed()
    place = await calling(batch, held)
    assert (await batch.bus.give_back(held.ref)).verb is Verb.COMMIT
    assert await verbs(batch, "run.yield") == (
        "admission.expire commit",
        "completion.fence commit",
        "transcript.fence commit",
        "sandbox.preempt commit",
    )
    row = await batch.row(held.ref.run)
    assert not {"t.lease", "c.lease"} & row.keys()
    assert row[f"b.ws:{held.ref.run}"] == "2 0 -"
    assert await desk_of(batch) == {place: "expired"}


async def test_a_hole_takes_back_all_that_its_run_had(batch: Batch) -> None:
    """Place, admission, lease, disk, call and window: what is forgotten here is never given back."""
    held = await batch.claimed()
    assert (await batch.bus.put_tools(held.ref, fan_out(held.ref, "book", seq=2))).verb is Verb.COMMIT
    place = await calling(batch, held)
    assert (await batch.bus.hole(held.ref, "solver_error", "boom")).verb is Verb.COMMIT
    assert await verbs(batch, "run.hole") == (
        "histogram.abandon commit",
        "admission.expire commit",
        "completion.fence commit",
        "transcript.fence commit",
        "sandbox.preempt commit",
        "join.expire commit",
        "plane.release commit",
        "admission.release commit",
    )
    row = await batch.row(held.ref.run)
    assert row[f"f.c:{held.ref.run}~0.1"].startswith("ABORTED")
    assert "windows" not in row
    assert await desk_of(batch) == {place: "expired"}


async def test_poison_ends_in_every_fence(server: Target) -> None:
    """The claim beyond the limit is the whole of a hole, also for what its last holder left at a desk."""
    async with opened(server.address(), runs=1, max_deliveries=1, limits=ALL) as batch:
        await batch.admit()
        held = await batch.claimed()
        place = await calling(batch, held)
        assert (await batch.bus.claim(held.entry, batch.lease(), W1)).reason == "poison"
        assert await desk_of(batch) == {place: "expired"}
        row = await batch.row(held.ref.run)
        assert not {"t.lease", "c.lease"} & row.keys()


async def test_the_operator_ends_what_a_call_holds_too(batch: Batch) -> None:
    """He names the generation, and has no lease."""
    held = await batch.claimed()
    place = await calling(batch, held)
    decision = await batch.bus.hole(replace(held.ref, lease_id=LeaseId("")), "operator", "")
    assert decision.verb is Verb.COMMIT
    assert await desk_of(batch) == {place: "expired"}
    assert (await batch.bus.open_call(held.ref, asked(held.ref, n=2))).reason == "stale_lease"


# --- seal -------------------------------------------------------------------------------------------------


async def sealed(batch: Batch, held: Held, *, tree: str = TREE, seq: int = 1, parent: str = EMPTY_HEAD) -> str:
    """What came of a seal with a tree, in words."""
    decision = await batch.bus.seal(held.ref, Digest(parent), seq, "answer", tree, ARTIFACT if tree else "")
    return str(decision)


async def test_a_seal_records_the_tree_writes_the_result_and_lets_go_of_the_disk(batch: Batch) -> None:
    """In one step with the end of the transcript: a score over another tree has nothing to stand on."""
    held = await batch.claimed()
    assert await sealed(batch, held) == "commit (run.seal)"
    assert await verbs(batch, "run.seal") == (
        "transcript.append commit",
        "transcript.seal commit",
        "workspace.record commit",
        "plane.write commit",
        "sandbox.preempt commit",
    )
    row = await batch.row(held.ref.run)
    assert (row[f"w.gen:{held.ref.run}"], row[f"w.tree:{held.ref.run}"]) == ("1", TREE)
    assert row[f"p.row:live:{held.ref.run}:result"] == "", "the transcript's head, which the row has already"
    assert row["t.head"] == next_head(EMPTY_HEAD, "answer")
    assert row[f"b.ws:{held.ref.run}"] == "2 0 -"
    assert row["state"] == "sealed"
    async with batch.unchanged():
        late = await batch.bus.write(held.ref, f"{held.ref.run}~0.9.w", "late", Digest("c" * 64), "receipt")
        assert not late.applied


async def test_a_run_with_a_fan_out_that_was_not_joined_cannot_be_sealed(batch: Batch) -> None:
    """Its effects would land beside a score that does not know of them."""
    held = await batch.claimed()
    await batch.bus.put_tools(held.ref, fan_out(held.ref, "book", seq=2))
    async with batch.unchanged():
        assert await sealed(batch, held) == "in_doubt in_flight (run.seal)"


async def test_a_run_with_a_call_under_way_cannot_be_sealed(batch: Batch) -> None:
    """Its tokens would be spent by nobody. One that was given up is no longer under way, but has left its intention."""
    held = await batch.claimed()
    call = asked(held.ref, seq=2)
    assert (await batch.bus.open_call(held.ref, call)).verb is Verb.COMMIT
    async with batch.unchanged():
        assert await sealed(batch, held) == "in_doubt unresolved_intent (run.seal)"
    await batch.bus.drop_call(held.ref, call, cancelled=False)
    async with batch.unchanged():
        assert await sealed(batch, held) == "in_doubt unresolved_intent (transcript.seal)"


async def test_a_run_that_is_giving_its_conversation_up_cannot_be_sealed(batch: Batch) -> None:
    """What it did outside is being undone: the answer stands on it. The next holder may not seal it either."""
    held = await batch.claimed()
    await gone_out(batch, held)
    turned = await batch.bus.turn(held.ref, (await head(batch, held)), "again")
    assert (turned.verb, turned.reason) == (Verb.IN_DOUBT, "in_flight")
    parent = await head(batch, held)
    async with batch.unchanged():
        assert await sealed(batch, held, seq=2, parent=parent) == "reject turning (run.seal)"
    second = await succeeded(batch, held)
    assert second.decision.answer["turning"] is True
    async with batch.unchanged():
        assert await sealed(batch, held, seq=2, parent=parent) == "reject stale_gen (transcript.append)"
        assert await sealed(batch, second, seq=2, parent=parent) == "reject turning (run.seal)"


async def test_what_belongs_to_a_conversation_that_was_given_up_is_refused(batch: Batch) -> None:
    """The holder is the same and its lease is live. Its event has the right head, of a chain that is over."""
    held = await batch.claimed()
    await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["one"])
    turned = await batch.bus.turn(held.ref, next_head(EMPTY_HEAD, "one"), "again")
    assert turned.answer["conversation"] == 1
    parent = next_head(EMPTY_HEAD, "one")
    async with batch.unchanged():
        assert await sealed(batch, held, seq=2, parent=parent) == "reject run_mismatch (run.seal)"
    now = replace(held.ref, conversation=1)
    parent = turned.answer["head"]
    (decision,) = await batch.bus.heartbeat(Group.WORKER, W1, Alive([now]))
    assert decision.verb is Verb.COMMIT
    assert (await batch.bus.append(now, parent, 2, ["two"])).verb is Verb.COMMIT
    assert [event.payload for event in await batch.bus.transcript(batch.name, now.run)] == ["again", "two"]
    assert await sealed(batch, replace(held, ref=now), seq=3, parent=next_head(parent, "two")) == "commit (run.seal)"
    (row,) = await batch.bus.rows(batch.name, [now.run])
    assert (row.state, row.conversation, row.length, row.tree) == ("sealed", 1, 3, TREE)


async def test_who_takes_a_turned_run_over_holds_its_present_conversation(batch: Batch) -> None:
    """And the one before it, which had begun it, has no lease of this chain and none of the run."""
    held = await batch.claimed()
    turned = await batch.bus.turn(held.ref, EMPTY_HEAD, "again")
    assert turned.verb is Verb.COMMIT
    old = replace(held.ref, conversation=1)
    second = await succeeded(batch, held)
    answer = second.decision.answer
    assert (second.ref.conversation, second.ref.gen, answer["length"]) == (1, 2, 1)
    async with batch.unchanged():
        assert (await batch.bus.append(old, turned.answer["head"], 2, ["late"])).reason == "run_mismatch"
        assert (await batch.bus.give_back(old)).reason == "stale_lease"
        assert (await batch.bus.hole(old, "x", "")).reason == "stale_lease"
    assert (await batch.bus.append(second.ref, turned.answer["head"], 2, ["two"])).verb is Verb.COMMIT
    assert (await batch.bus.give_back(second.ref)).verb is Verb.COMMIT


async def gone_out(batch: Batch, held: Held) -> None:
    """One effect of a joined fan-out stands outside."""
    out = fan_out(held.ref, "book")
    assert (await batch.bus.put_tools(held.ref, out)).verb is Verb.COMMIT
    entry = await batch.delivered(W1, Group.TOOLS)
    assert (await batch.bus.tool_claim(entry, "executor", W1)).verb is Verb.COMMIT
    name = out.intents[0].id
    sent = await batch.bus.tool_sent(batch.name, held.ref.run, name, Gen(1), "executor", "slot")
    assert sent.verb is Verb.COMMIT
    outcome = Outcome(True, '{"ticket":7}', name)
    said = await batch.bus.tool_complete(batch.name, held.ref.run, name, Gen(1), "executor", outcome)
    assert said.verb is Verb.COMMIT
    assert (await batch.bus.join(held.ref, out, "joined")).verb is Verb.COMMIT


async def head(batch: Batch, held: Held) -> Digest:
    """The run's chain as it stands."""
    (row,) = await batch.bus.rows(batch.name, [held.ref.run])
    return Digest(row.head)


# --- the scorer's steps -------------------------------------------------------------------------------------


async def scoring(batch: Batch, *, tree: str = TREE) -> Scoring:
    """A sealed run with a tree, in a scorer's hands; it judged that very tree."""
    assert await sealed(batch, await batch.claimed(), tree=tree) == "commit (run.seal)"
    claimed = await batch.scoring()
    return replace(claimed, judgement=replace(claimed.judgement, tree_hash=tree))


async def judging(batch: Batch, held: Scoring) -> str:
    """A judge's call under way; the name of its place."""
    call = judged(held.ref)
    assert (await batch.bus.open_judge(held.ref, call)).verb is Verb.COMMIT
    return call.desk_lease


async def test_a_score_is_attached_to_the_tree_that_was_sealed(batch: Batch) -> None:
    """Under the generation that sealed it: that of the worker, which is none of the scorer's epochs."""
    held = await succeeded(batch, await batch.claimed())
    assert await sealed(batch, held) == "commit (run.seal)"
    claimed = await batch.scoring()
    signed = await batch.bus.score(claimed.ref, replace(claimed.judgement, tree_hash=TREE))
    assert signed.verb is Verb.COMMIT
    assert await verbs(batch, "run.score") == (
        "judge.commit commit",
        "workspace.attach commit",
        "histogram.score commit",
        "admission.apply commit",
        "plane.release commit",
        "admission.release commit",
    )
    row = await batch.row(held.ref.run)
    assert (row[f"w.gen:{held.ref.run}"], row[f"w.verdict:{held.ref.run}"]) == ("2", "pass")


@pytest.mark.parametrize(("tree", "why"), [("f" * 64, "tree_hash"), ("", "schema")])
async def test_a_score_over_another_tree_does_not_count(batch: Batch, tree: str, why: str) -> None:
    """The scorer unpacked leftovers, or never looked. It keeps its lease, and may look again."""
    claimed = await scoring(batch)
    async with batch.unchanged():
        wrong = replace(claimed.judgement, tree_hash=tree)
        assert refused(await batch.bus.score(claimed.ref, wrong)) == f"reject {why} (workspace.attach)"
    assert (await batch.bus.score(claimed.ref, claimed.judgement)).verb is Verb.COMMIT


async def test_a_run_without_a_tree_is_scored_without_fence_9(batch: Batch) -> None:
    """It declares no workspace: there is nothing to attach a verdict to."""
    claimed = await scoring(batch, tree="")
    assert (await batch.bus.score(claimed.ref, claimed.judgement)).verb is Verb.COMMIT
    assert "workspace.attach commit" not in await verbs(batch, "run.score")


@pytest.mark.parametrize("how", ["claim", "score", "yield", "hole", "rebind"])
async def test_whatever_ends_a_scorers_lease_settles_its_judges_calls(batch: Batch, how: str) -> None:
    """Nobody waits for the answer; the place at the judge's desk is swept in time, instead of never."""
    claimed = await scoring(batch)
    place = await judging(batch, claimed)
    if how == "claim":
        await batch.scoring(W2, await batch.taken(claimed.entry, W2))
    elif how == "score":
        assert (await batch.bus.score(claimed.ref, claimed.judgement)).verb is Verb.COMMIT
    elif how == "yield":
        assert (await batch.bus.score_give_back(claimed.ref)).verb is Verb.COMMIT
    elif how == "hole":
        assert (await batch.bus.score_hole(claimed.ref, "scorer_error", "")).verb is Verb.COMMIT
    else:
        assert (await batch.bus.rebind(batch.name, claimed.ref.run, 1, "candidate", "other")).verb is Verb.COMMIT
    assert await desk_of(batch, JUDGE_DESK) == {place: "expired"}
    await at(batch, 2_000)
    assert (await batch.bus.sweep(batch.name, 10, JUDGE_DESK)).answer["freed"] == 1
    assert await desk_of(batch, JUDGE_DESK) == {}


async def test_a_hole_of_a_sealed_run_takes_the_workers_lease_out_of_every_fence(batch: Batch) -> None:
    """The seal left it live, so that its resend is told; the end of the run does not."""
    claimed = await scoring(batch)
    assert (await batch.bus.score_hole(claimed.ref, "scorer_error", "")).verb is Verb.COMMIT
    assert await verbs(batch, "run.score_hole") == (
        "histogram.abandon commit",
        "completion.fence commit",
        "transcript.fence commit",
        "plane.release commit",
        "admission.release commit",
    )


async def test_an_artifact_is_named_by_the_row_beside_its_tree(batch: Batch) -> None:
    """What is scored anew after the close is read from there."""
    await scoring(batch)
    (row,) = await batch.bus.rows(batch.name, batch.runs[:1])
    assert (row.tree, row.artifact) == (TREE, ARTIFACT)
