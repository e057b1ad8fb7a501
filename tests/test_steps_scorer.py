"""The scorer's steps on a real server: claim, sign, hand back, end as a hole, bind to another judge.

A score counts once: under the newest epoch, over the sealed head, by the judge that was bound before it existed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from bus.chain import EMPTY_HEAD, next_head
from bus.port import Group, Held, Judgement, Ref
from bus.target import Target
from bus.types import Digest, EntryId, Gen, LeaseId, RunId, Verb
from tests.batches import P1, S1, S2, Batch, Scoring, opened, refused


@pytest.fixture
async def batch(server: Target) -> AsyncIterator[Batch]:
    """Three runs, admitted, the first one sealed."""
    async with opened(server.address()) as one:
        await one.admit()
        await one.sealed()
        yield one


HEAD = next_head(EMPTY_HEAD, "answer")


# --- claim ------------------------------------------------------------------------------------------------


async def test_a_sealed_run_is_claimed_with_all_that_its_judge_needs(server: Target) -> None:
    """The head and the tree to judge, where the tree is stored, and who was bound to judge it."""
    async with opened(server.address(), runs=1) as batch:
        await batch.admit()
        held = await batch.claimed()
        await batch.bus.seal(held.ref, EMPTY_HEAD, 1, "answer", "t" * 64, "a" * 64)
        scoring = await batch.scoring()
        assert scoring.decision.answer == {
            "epoch": 1,
            "attempts": 1,
            "head": HEAD,
            "tree_hash": "t" * 64,
            "artifact": "a" * 64,
            "candidate": "candidate",
            "judge": "judge",
            "judge_epoch": 1,
        }
        assert await batch.state(scoring.ref.run) == "scoring"


async def test_a_score_claim_that_is_sent_again_is_the_same_claim(batch: Batch) -> None:
    """One lease, one epoch."""
    scoring = await batch.scoring()
    async with batch.unchanged():
        again = await batch.bus.score_claim(scoring.entry, scoring.ref.lease_id, S1)
    assert (again.verb, again.answer) == (Verb.DUPLICATE, scoring.decision.answer)


async def test_each_claim_opens_a_newer_epoch(batch: Batch) -> None:
    """A scorer that was taken for dead must not sign beside its successor."""
    first = await batch.scoring(S1)
    await batch.taken(first.entry, S2)
    second = await batch.scoring(S2, first.entry)
    assert (first.ref.gen, second.ref.gen, second.decision.answer["attempts"]) == (1, 2, 2)
    async with batch.unchanged():
        assert refused(await batch.bus.score(first.ref, first.judgement)) == "reject stale_lease (run.score)"
        late = await batch.bus.score_claim(first.entry, first.ref.lease_id, S1)
        assert refused(late) == "reject lease_reused (run.score_claim)"
        (beat,) = await batch.bus.heartbeat(Group.SCORER, S1, Held([first.ref]))
        assert beat.reason == "stale_lease"
    assert await batch.pending(Group.SCORER) == {first.entry.id: S2}
    assert (await batch.bus.score(second.ref, second.judgement)).verb is Verb.COMMIT


async def test_a_scorer_that_slept_before_its_claim_is_no_longer_the_owner(batch: Batch) -> None:
    """The message is another's."""
    entry = await batch.taken(await batch.delivered(S1, Group.SCORER), S2)
    async with batch.unchanged():
        assert refused(await batch.bus.score_claim(entry, batch.lease(), S1)) == "reject not_owner (run.score_claim)"


async def test_a_second_score_message_takes_nothing_from_the_first(batch: Batch) -> None:
    """The row names the one that counts; the other is taken off."""
    first = await batch.delivered(S1, Group.SCORER)
    second = await batch.forged(first.run, S2, Group.SCORER)
    before = await batch.row(first.run)
    decision = await batch.bus.score_claim(second, batch.lease(), S2)
    assert refused(decision) == "reject duplicate_entry (run.score_claim)"
    assert await batch.row(first.run) == before
    assert await batch.pending(Group.SCORER) == {first.id: S1}
    assert (await batch.scoring(S1, first)).ref.gen == 1


@pytest.mark.parametrize("state", ["queued", "running", "scored", "hole"])
async def test_a_score_message_of_a_run_that_is_not_sealed_is_taken_off(batch: Batch, state: str) -> None:
    """There is nothing to judge yet, or any more."""
    run = batch.runs[1]
    if state == "scored":
        run = batch.runs[0]
        scoring = await batch.scoring()
        await batch.bus.score(scoring.ref, scoring.judgement)
    elif state != "queued":
        held = await batch.claimed()
        if state == "hole":
            await batch.bus.hole(held.ref, "solver_error", "")
    else:
        await batch.delivered(S1, Group.SCORER)
    before = await batch.row(run)
    assert before["state"] == state
    entry = await batch.forged(run, S1, Group.SCORER)
    assert refused(await batch.bus.score_claim(entry, batch.lease(), S1)) == "reject ended (run.score_claim)"
    assert entry.id not in await batch.pending(Group.SCORER)
    assert await batch.row(run) == before


async def test_a_run_that_silences_each_of_its_scorers_ends_as_judge_failed(server: Target) -> None:
    """The claim that would be one too many ends it; its place, its result and its message with it."""
    async with opened(server.address(), runs=1, max_deliveries=2) as batch:
        await batch.admit()
        await batch.sealed()
        first = await batch.scoring()
        second = await batch.scoring(S1, first.entry)
        decision = await batch.bus.score_claim(first.entry, batch.lease(), S1)
        assert refused(decision) == "reject judge_failed (run.score_claim)"
        counters = await batch.bus.counters(batch.name)
        assert (counters.hole_reasons, counters.in_flight) == ({"judge_failed": 1}, 0)
        assert await batch.waiting(Group.SCORER) == []
        assert await batch.waiting(Group.PLANNER) == batch.runs
        async with batch.unchanged():
            assert refused(await batch.bus.score(second.ref, second.judgement)) == "reject stale_lease (run.score)"


async def test_no_more_runs_are_judged_at_once_than_declared(server: Target) -> None:
    """Refused without an acknowledgement and without a count: the message waits, and is not one attempt the poorer."""
    async with opened(server.address(), max_in_flight=1) as batch:
        await batch.admit()
        await batch.sealed()
        await batch.sealed()
        first = await batch.scoring()
        waiting = await batch.delivered(S1, Group.SCORER)
        async with batch.unchanged():
            for _ in range(batch.spec.max_deliveries + 1):
                decision = await batch.bus.score_claim(waiting, batch.lease(), S1)
                assert refused(decision) == "reject backpressure (histogram.fence)"
        await batch.bus.score(first.ref, first.judgement)
        assert (await batch.scoring(S1, waiting)).decision.answer["attempts"] == 1


# --- score ------------------------------------------------------------------------------------------------


async def test_a_score_counts_once_and_ends_everything_of_its_run(batch: Batch) -> None:
    """Bin, place at the desk, result and acknowledgement in one step."""
    scoring = await batch.scoring()
    assert (await batch.bus.score(scoring.ref, scoring.judgement)).verb is Verb.COMMIT
    counters = await batch.bus.counters(batch.name)
    assert (counters.bins, counters.scored, counters.in_flight) == ({"pass": 1, "fail": 0}, 1, 2)
    (row,) = await batch.bus.rows(batch.name, [scoring.ref.run])
    assert (row.state, row.bin, row.value, row.digest, row.epoch) == ("scored", "pass", "1", HEAD, 1)
    assert await batch.pending(Group.SCORER) == {}
    woken = await batch.bus.read(Group.PLANNER, P1, [batch.name], 10, 1)
    assert [entry.run for entry in woken] == [scoring.ref.run]
    (record,) = await batch.history("run.score")
    assert record.verbs == (
        "judge.commit commit",
        "histogram.score commit",
        "admission.apply commit",
        "plane.release commit",
        "admission.release commit",
    )


async def test_a_score_that_is_sent_again_does_not_count_again(batch: Batch) -> None:
    """Nor does another one under the same lease: what was signed first stands."""
    scoring = await batch.scoring()
    await batch.bus.score(scoring.ref, scoring.judgement)
    async with batch.unchanged():
        for judgement in (scoring.judgement, replace(scoring.judgement, bin="fail", value="0")):
            assert (await batch.bus.score(scoring.ref, judgement)).verb is Verb.DUPLICATE


@pytest.mark.parametrize(
    ("wrong", "refusal"),
    [
        ({"head": "0" * 64}, "reject digest_mismatch (histogram.score)"),
        ({"bin": "unheard of"}, "reject schema (histogram.score)"),
        ({"candidate": ""}, "reject unbound (judge.commit)"),
        ({"judge": ""}, "reject unbound (judge.commit)"),
        ({"judge_epoch": 2}, "reject stale_epoch (judge.commit)"),
        ({"bin": ""}, "reject schema (run.score)"),
        ({"value": ""}, "reject schema (run.score)"),
    ],
    ids=str,
)
async def test_a_score_that_does_not_fit_moves_no_bin(batch: Batch, wrong: dict[str, object], refusal: str) -> None:
    """Over another head than was sealed, into a bin that does not exist, by nobody: refused, and the lease stays."""
    scoring = await batch.scoring()
    judgement = replace(scoring.judgement, **wrong)  # type: ignore[arg-type]
    async with batch.unchanged():
        assert refused(await batch.bus.score(scoring.ref, judgement)) == refusal
    assert (await batch.bus.score(scoring.ref, scoring.judgement)).verb is Verb.COMMIT


async def test_a_score_without_a_claim_is_refused(batch: Batch) -> None:
    """Whatever it says, and whoever says it."""
    nobody = Ref(batch.name, batch.runs[0], LeaseId("none"), Gen(1))
    unknown = replace(nobody, run=RunId("x#1"))
    for ref in (nobody, unknown):
        async with batch.unchanged():
            assert refused(await batch.bus.score(ref, _judgement())) == "reject stale_lease (run.score)"


def _judgement(**fields: object) -> Judgement:
    said = Judgement(HEAD, "", "candidate", "judge", 1, "pass", "1")
    return replace(said, **fields)  # type: ignore[arg-type]


# --- another judge than was bound -------------------------------------------------------------------------


async def _mismatched(batch: Batch, **observed: object) -> Scoring:
    """A sealed run, judged by somebody else."""
    await batch.admit()
    await batch.sealed()
    scoring = await batch.scoring()
    wrong: dict[str, object] = {"judge": "another"}
    return replace(scoring, judgement=replace(scoring.judgement, **(observed or wrong)))  # type: ignore[arg-type]


@pytest.mark.parametrize("who", ["judge", "candidate"])
async def test_under_reject_another_judges_score_makes_a_hole(server: Target, who: str) -> None:
    """A pool routed the call elsewhere. The score is thrown away, and the batch says why it has one fewer."""
    async with opened(server.address(), runs=1, judge_policy="reject") as batch:
        scoring = await _mismatched(batch, **{who: "another"})
        decision = await batch.bus.score(scoring.ref, scoring.judgement)
        assert refused(decision) == f"reject {who}_mismatch (judge.commit)"
        counters = await batch.bus.counters(batch.name)
        assert (counters.hole_reasons, counters.in_flight) == ({f"{who}_mismatch": 1}, 0)
        assert counters.refusals == {f"{who}_mismatch": 1}
        assert sum(counters.bins.values()) == 0
        assert await batch.waiting(Group.SCORER) == []
        assert await batch.waiting(Group.PLANNER) == batch.runs
        async with batch.unchanged():
            again = await batch.bus.score(scoring.ref, scoring.judgement)
            assert refused(again) == "reject stale_lease (run.score)"


async def test_under_review_another_judges_score_is_parked_for_a_person(server: Target) -> None:
    """The message is acknowledged and no lease is held, so nobody waits; the run is listed until somebody decides."""
    async with opened(server.address(), runs=1, judge_policy="review") as batch:
        scoring = await _mismatched(batch)
        assert (
            refused(await batch.bus.score(scoring.ref, scoring.judgement)) == "in_doubt judge_mismatch (judge.commit)"
        )
        assert await batch.bus.parked(batch.name) == batch.runs
        counters = await batch.bus.counters(batch.name)
        assert (counters.review, counters.sealed, counters.refusals) == (1, 1, {})
        assert await batch.waiting(Group.SCORER) == []
        assert (await batch.row(scoring.ref.run))["state"] == "sealed"
        assert (await batch.bus.close(batch.name, "x", 0)).reason == "in_flight"
        entry = EntryId((await batch.row(scoring.ref.run))["entry"])
        async with batch.unchanged():  # its group does not know its message, and yet nothing was lost
            requeued = await batch.bus.requeue(batch.name, Group.SCORER, scoring.ref.run, entry)
            assert refused(requeued) == "reject still_known (run.requeue)"


async def test_under_replay_a_mismatch_is_paid_from_the_budget_until_it_is_used_up(server: Target) -> None:
    """Each mismatch may be judged anew while the budget lasts; after that it is a hole, as under reject."""
    async with opened(server.address(), runs=2, judge_policy="replay", replay_budget=1) as batch:
        first = await _mismatched(batch)
        assert refused(await batch.bus.score(first.ref, first.judgement)) == "replay judge_mismatch (judge.commit)"
        assert await batch.bus.parked(batch.name) == [first.ref.run]
        await batch.sealed()
        second = await batch.scoring()
        wrong = replace(second.judgement, judge="another")
        assert refused(await batch.bus.score(second.ref, wrong)) == "reject judge_mismatch (judge.commit)"
        assert await batch.state(second.ref.run) == "hole"
        assert await batch.refusals() == {"judge_mismatch": 2}


async def test_a_parked_score_that_is_rebound_is_asked_for_anew_under_a_new_token(server: Target) -> None:
    """A change of judge is somebody's decision. What was signed under the old token is refused from then on."""
    async with opened(server.address(), runs=1, judge_policy="review") as batch:
        parked = await _mismatched(batch)
        await batch.bus.score(parked.ref, parked.judgement)
        decision = await batch.bus.rebind(batch.name, parked.ref.run, 1, "candidate", "another")
        assert decision.answer == {"epoch": 2}
        assert await batch.bus.parked(batch.name) == []
        scoring = await batch.scoring()
        assert (scoring.judgement.judge, scoring.judgement.judge_epoch) == ("another", 2)
        async with batch.unchanged():
            old = replace(scoring.judgement, judge="judge", judge_epoch=1)
            assert refused(await batch.bus.score(scoring.ref, old)) == "reject stale_epoch (judge.commit)"
        assert (await batch.bus.score(scoring.ref, scoring.judgement)).verb is Verb.COMMIT


async def test_a_rebind_takes_the_run_from_the_scorer_that_has_it(batch: Batch) -> None:
    """It judges with the judge that is no longer bound. Its message goes, and it learns it from its next step."""
    scoring = await batch.scoring()
    await batch.bus.rebind(batch.name, scoring.ref.run, 1, "candidate", "another")
    await batch.check()
    async with batch.unchanged():
        assert refused(await batch.bus.score(scoring.ref, scoring.judgement)) == "reject stale_lease (run.score)"
    assert await batch.pending(Group.SCORER) == {}
    assert (await batch.scoring()).judgement.judge == "another"


async def test_a_rebind_that_is_sent_again_is_one_rebind(batch: Batch) -> None:
    """By its command's id: by its epoch alone, the second sending would be stale."""
    run = batch.runs[0]

    async def rebind(command: str, epoch: int = 1) -> str:
        decision = await batch.bus._step(
            "rebind", batch.name, run=run, epoch=epoch, candidate="candidate", judge="another", command_id=command
        )
        return str(decision)

    assert await rebind("one") == "commit (run.rebind)"
    async with batch.unchanged():
        assert await rebind("one") == "duplicate (run.rebind)"
        assert await rebind("two") == "reject stale_epoch (judge.rebind)"


async def test_only_a_run_that_waits_for_its_score_can_be_rebound(batch: Batch) -> None:
    """Before its seal the judge is still the one that was bound at its admission; after its score it has signed."""
    scoring = await batch.scoring()
    await batch.bus.score(scoring.ref, scoring.judgement)
    for run in (batch.runs[0], batch.runs[1], RunId("x#1")):
        async with batch.unchanged():
            decision = await batch.bus.rebind(batch.name, run, 1, "candidate", "another")
            assert refused(decision) == "reject ended (run.rebind)"


# --- yield and hole ---------------------------------------------------------------------------------------


async def test_a_score_that_was_handed_back_is_there_at_once_for_the_next(batch: Batch) -> None:
    """A new message, no attempt counted; the epoch goes on, so that the one who gave it back can no longer sign."""
    scoring = await batch.scoring()
    assert (await batch.bus.score_give_back(scoring.ref)).verb is Verb.COMMIT
    await batch.check()
    async with batch.unchanged():
        assert (await batch.bus.score_give_back(scoring.ref)).verb is Verb.DUPLICATE
        assert refused(await batch.bus.score(scoring.ref, scoring.judgement)) == "reject stale_lease (run.score)"
    assert await batch.pending(Group.SCORER) == {}
    next_one = await batch.scoring(S2)
    assert next_one.entry.id != scoring.entry.id
    assert (next_one.ref.gen, next_one.decision.answer["attempts"]) == (2, 1)
    async with batch.unchanged():
        assert (await batch.bus.score_give_back(scoring.ref)).verb is Verb.DUPLICATE


async def test_a_score_that_is_handed_back_over_and_over_counts_as_one_that_kills_its_scorers(batch: Batch) -> None:
    """Likewise as with a run's worker: twenty times are free, then each is an attempt, up to the limit."""
    scoring = await batch.scoring()
    for _ in range(20):
        await batch.bus.score_give_back(scoring.ref)
        scoring = await batch.scoring()
    entry = scoring.entry
    assert (await batch.bus.score_give_back(scoring.ref)).verb is Verb.COMMIT
    row = await batch.row(entry.run)
    assert (row["state"], row["s.attempts"], row["entry"]) == ("sealed", "1", entry.id)
    assert list(await batch.pending(Group.SCORER)) == [entry.id]


async def test_a_fenced_scorer_hands_nothing_back(batch: Batch) -> None:
    """The message is its successor's."""
    late = await batch.scoring(S1)
    await batch.taken(late.entry, S2)
    await batch.scoring(S2, late.entry)
    async with batch.unchanged():
        assert refused(await batch.bus.score_give_back(late.ref)) == "reject stale_lease (run.score_yield)"
        assert refused(await batch.bus.score_hole(late.ref, "scorer_error", "")) == (
            "reject stale_lease (run.score_hole)"
        )
    assert await batch.pending(Group.SCORER) == {late.entry.id: S2}


async def test_hand_backs_never_make_a_judge_failed(server: Target) -> None:
    """Scorers that are told to stop say nothing about the run."""
    async with opened(server.address(), runs=1, max_deliveries=1) as batch:
        await batch.admit()
        await batch.sealed()
        for _ in range(4):
            await batch.bus.score_give_back((await batch.scoring()).ref)
        scoring = await batch.scoring()
        assert (await batch.bus.score(scoring.ref, scoring.judgement)).verb is Verb.COMMIT


async def test_a_judgement_that_cannot_be_had_is_a_hole(batch: Batch) -> None:
    """A scorer that crashed has neither passed nor failed the run."""
    scoring = await batch.scoring()
    assert (await batch.bus.score_hole(scoring.ref, "scorer_error", "exit 2")).verb is Verb.COMMIT
    (row,) = await batch.bus.rows(batch.name, [scoring.ref.run])
    assert (row.state, row.hole, row.detail, row.bin) == ("hole", "scorer_error", "exit 2", "")
    assert (await batch.bus.counters(batch.name)).in_flight == 2
    assert await batch.pending(Group.SCORER) == {}
    async with batch.unchanged():
        assert (await batch.bus.score_hole(scoring.ref, "scorer_error", "exit 2")).verb is Verb.DUPLICATE
        assert (await batch.bus.score_hole(scoring.ref, "judge_failed", "")).reason == "stale_lease"
        assert (await batch.bus.score(scoring.ref, scoring.judgement)).reason == "stale_lease"


@pytest.mark.parametrize("claims", [0, 1])
async def test_an_operator_ends_the_epoch_that_he_names(batch: Batch, claims: int) -> None:
    """Sealed and waiting, or being judged at the moment."""
    scoring = [await batch.scoring() for _ in range(claims)]
    wrong = Ref(batch.name, batch.runs[0], LeaseId(""), Gen(claims + 1))
    async with batch.unchanged():
        assert (await batch.bus.score_hole(wrong, "operator", "")).reason == "stale_lease"
    right = replace(wrong, gen=Gen(claims))
    assert (await batch.bus.score_hole(right, "operator", "")).verb is Verb.COMMIT
    async with batch.unchanged():
        assert (await batch.bus.score_hole(right, "operator", "")).verb is Verb.DUPLICATE
        for one in scoring:
            assert (await batch.bus.score(one.ref, one.judgement)).reason == "stale_lease"
    assert await batch.waiting(Group.SCORER) == []


async def test_a_parked_run_that_is_ended_leaves_the_review(server: Target) -> None:
    """Nobody reviewed it in time. It is listed no longer, and the batch can close."""
    async with opened(server.address(), runs=1, judge_policy="review") as batch:
        parked = await _mismatched(batch)
        await batch.bus.score(parked.ref, parked.judgement)
        await batch.end(parked.ref.run)
        assert await batch.bus.parked(batch.name) == []
        assert (await batch.bus.close(batch.name, "x", 0)).reason == "below_quorum"


def test_a_digest_signs_head_bin_and_value_together() -> None:
    """So that none of the three can be exchanged under a signature."""
    said = _judgement()
    others = [_judgement(head=Digest("0" * 64)), _judgement(bin="fail"), _judgement(value="0")]
    assert len({one.score_digest for one in [said, *others]}) == 4
