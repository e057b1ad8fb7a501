"""What the fences prevented: histories made on a real server, and the claims about them worked out by hand.

Each policy is shown a history in which somebody was late, double or mistaken, where its claims must be these and no
others; and one in which nobody was, where all of them are 0.
"""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bus.chain import EMPTY_HEAD
from bus.errors import InputError
from bus.policies import NAMES, Policies, Prevented, Proof, RatePoint
from bus.port import Chunk
from bus.replay.lines import Lines
from bus.replay.telling import Told
from bus.snapshot import Snapshot
from bus.target import Target
from bus.types import Digest, Verb
from tests.batches import S2, W2, Batch, Scoring, opened
from tests.histories import exported, parsed, rechained, whole_history
from tests.limits import FIRST_BUDGET
from tests.model_calls import LIMITS, answered, asked, at, opened_call, succeeded
from tests.tool_calls import BOUND_MS, INVERSES, START_MS, Tools
from workers.cli import app
from workers.results.prevented import sparkline

TOOLS = {"ack_bound_ms": BOUND_MS, "inverses": INVERSES}


def prevented(lines: Sequence[bytes], *names: str) -> dict[str, Prevented]:
    """What the policies say of a history."""
    policies, read = Policies(names or ("all",)), Lines("h.jsonl")
    policies.start(read.first(lines[0]).policy)
    for line in lines[1:-1]:
        told = read.next(line)
        assert isinstance(told, Told)
        policies.feed(told)
    return {one.policy: one for one in policies.finish()}


def counts(told: Prevented) -> dict[str, int]:
    """Claim → how often, those at 0 left out."""
    return {claim.what: claim.count for claim in told.claims if claim.count}


def out_of(told: Prevented) -> dict[str, int]:
    """Claim → its denominator."""
    return {claim.what: claim.of for claim in told.claims}


def proofs(told: Prevented, what: str) -> tuple[Proof, ...]:
    """Of one claim."""
    (found,) = [claim.proofs for claim in told.claims if claim.what == what]
    return found


def shares(told: Prevented) -> list[str]:
    """The pass rate over time, `1/2` one a point."""
    return [f"{point.passed}/{point.counted}" for point in told.rate]


def decisions(lines: Sequence[bytes], proof: Proof) -> list[str]:
    """What stands in the entries that a proof names: `run.score reject stale_lease`."""
    by_id = {said["id"]: said for said in map(parsed, lines[1:-1])}
    words = [
        [by_id[one]["fence"] + "." + by_id[one]["op"], by_id[one]["verb"], by_id[one]["reason"]]
        for one in proof.entries
    ]
    return [" ".join(word for word in each if word) for each in words]


async def closed(batch: Batch) -> list[bytes]:
    """Close a batch whose runs have all ended; its history."""
    await batch.closed()
    return await exported(batch)


async def scored(batch: Batch, scoring: Scoring, named: str = "pass", judge: str = "") -> bool:
    """Whether a verdict was accepted. `judge`: another than was bound."""
    said = replace(scoring.judgement, bin=named, judge=judge or scoring.judgement.judge)
    return (await batch.bus.score(scoring.ref, said)).applied


async def taken_over(batch: Batch, scoring: Scoring) -> Scoring:
    """The same run in another scorer's hands."""
    return await batch.scoring(S2, await batch.taken(scoring.entry, S2))


# --- nobody was late --------------------------------------------------------------------------------------


async def test_of_an_undisturbed_batch_no_policy_claims_anything(server: Target) -> None:
    """Model calls, tools, seals and scores, each once: whatever one believes, it comes to the same number."""
    async with opened(server.address(), runs=2, limits=FIRST_BUDGET) as batch:
        await batch.admit()
        tools = await Tools.open(batch)
        call = asked(tools.ref)
        granted = await batch.bus.open_call(tools.ref, call)
        bound = await batch.bus.bind_call(tools.ref, call, granted.answer["desk_gen"], answered())
        tools.head, tools.length = bound.answer["head"], 1
        fan_out = await tools.put(2, n=2)
        await tools.done()
        await tools.done(ok=False)
        await tools.join(fan_out)
        assert (await batch.bus.seal(tools.ref, tools.head, tools.length + 1, "done", "", "")).applied
        assert await scored(batch, await batch.scoring())
        await batch.sealed()
        assert await scored(batch, await batch.scoring(), "fail")
        told = prevented(await closed(batch))
    assert tuple(told) == NAMES
    assert {name: counts(one) for name, one in told.items()} == {name: {} for name in NAMES}
    assert all(not claim.proofs for one in told.values() for claim in one.claims)
    by_verdict = ("first-200", "job-id", "mutable-mean", "sticky-judge")
    assert {name: shares(told[name]) for name in by_verdict} == {name: ["1/1", "1/2"] for name in by_verdict}
    assert out_of(told["first-200"])["replies_replaced"] == 1
    assert out_of(told["retry-on-timeout"])["effects_doubled"] == 2
    assert out_of(told["no-ledger"])["tokens_unaccounted"] == 30


# --- verdicts ---------------------------------------------------------------------------------------------


async def test_a_scorer_that_was_given_up_and_says_something_else_first_would_have_decided(server: Target) -> None:
    """Its lease is not compared: its `fail` stands, and the `pass` of its successor finds the run scored."""
    async with opened(server.address(), runs=1) as batch:
        await batch.admit()
        await batch.sealed()
        silent = await batch.scoring()
        signs = await taken_over(batch, silent)
        assert not await scored(batch, silent, "fail")
        assert await scored(batch, signs)
        lines = await closed(batch)
    told = prevented(lines)
    assert counts(told["first-200"]) == {"verdicts_flipped": 1}
    (proof,) = proofs(told["first-200"], "verdicts_flipped")
    assert decisions(lines, proof) == ["run.score reject stale_lease", "histogram.score commit"]
    assert proof.says == "fail (refused as stale_lease) would stand where pass counts"
    assert shares(told["first-200"]) == ["0/1"]
    assert counts(told["job-id"]) == {}
    assert shares(told["job-id"]) == ["0/1", "1/1"]
    assert counts(told["mutable-mean"]) == {"verdicts_counted_twice": 1}
    assert out_of(told["mutable-mean"])["verdicts_counted_twice"] == 2
    assert shares(told["mutable-mean"]) == ["0/1", "1/2"]
    assert counts(told["sticky-judge"]) == {}


async def test_a_scorer_that_wakes_up_when_all_is_closed_would_have_moved_the_number(server: Target) -> None:
    """The last to arrive overwrites; a mean goes on. Here the batch had a snapshot, and it did not move."""
    async with opened(server.address(), runs=1) as batch:
        await batch.admit()
        await batch.sealed()
        silent = await batch.scoring()
        assert await scored(batch, await taken_over(batch, silent))
        await closed(batch)
        assert not await scored(batch, silent, "fail")
        lines = await exported(batch)
    told = prevented(lines)
    assert counts(told["first-200"]) == {}
    assert counts(told["job-id"]) == {"verdicts_flipped": 1}
    assert shares(told["job-id"]) == ["1/1", "0/1"]
    assert counts(told["mutable-mean"]) == {"verdicts_counted_twice": 1, "moved_after_close": 1}
    (moved,) = proofs(told["mutable-mean"], "moved_after_close")
    assert decisions(lines, moved) == ["histogram.close commit", "run.score reject stale_lease"]


async def test_two_scorers_of_one_mind_flip_nothing(server: Target) -> None:
    """The late one says the same bin: whoever is believed, it is the same. It would count twice, though."""
    async with opened(server.address(), runs=1) as batch:
        await batch.admit()
        await batch.sealed()
        silent = await batch.scoring()
        signs = await taken_over(batch, silent)
        assert not await scored(batch, silent)
        assert await scored(batch, signs)
        told = prevented(await closed(batch))
    assert counts(told["first-200"]) == counts(told["job-id"]) == {}
    assert counts(told["mutable-mean"]) == {"verdicts_counted_twice": 1}


async def test_a_verdict_behind_a_hole_would_have_filled_it(server: Target) -> None:
    """An operator ended the run while its scorer was busy; what the scorer says then counts for nothing."""
    async with opened(server.address(), runs=2) as batch:
        await batch.admit()
        await batch.scored()
        await batch.sealed()
        busy = await batch.scoring()
        await batch.end(busy.ref.run)
        assert not await scored(batch, busy)
        lines = await closed(batch)
    told = prevented(lines)
    for name in ("first-200", "job-id", "mutable-mean"):
        assert counts(told[name]) == {"holes_filled": 1}, name
        assert out_of(told[name])["holes_filled"] == 1
        (proof,) = proofs(told[name], "holes_filled")
        assert decisions(lines, proof) == ["histogram.abandon commit", "run.score reject stale_lease"]
        assert "for a run that ended as operator" in proof.says
    assert counts(told["sticky-judge"]) == {}


async def test_a_scorer_that_gives_up_too_late_would_have_taken_the_verdict_away(server: Target) -> None:
    """Its successor had scored the run: the late error overwrites where the last to arrive does."""
    async with opened(server.address(), runs=1) as batch:
        await batch.admit()
        await batch.sealed()
        silent = await batch.scoring()
        assert await scored(batch, await taken_over(batch, silent))
        assert not (await batch.bus.score_hole(silent.ref, "scorer_error", "boom")).applied
        lines = await closed(batch)
    told = prevented(lines)
    assert counts(told["job-id"]) == {"verdicts_lost": 1}
    assert shares(told["job-id"]) == ["1/1", "0/0"]
    (proof,) = proofs(told["job-id"], "verdicts_lost")
    assert decisions(lines, proof) == ["histogram.score commit", "run.score_hole reject stale_lease"]
    assert counts(told["first-200"]) == counts(told["mutable-mean"]) == {}


async def test_what_could_not_be_read_is_no_verdict(server: Target) -> None:
    """A bin that the batch does not have was refused: no policy could have shown it in a pass rate."""
    async with opened(server.address(), runs=1) as batch:
        await batch.admit()
        await batch.sealed()
        scoring = await batch.scoring()
        assert not await scored(batch, scoring, "excellent")
        assert await scored(batch, scoring)
        told = prevented(await closed(batch))
    assert [counts(one) for one in told.values()] == [{}] * len(NAMES)
    assert shares(told["mutable-mean"]) == ["1/1"]


# --- judges -----------------------------------------------------------------------------------------------


async def test_a_verdict_of_another_judge_would_have_been_signed(server: Target) -> None:
    """Under `reject` its run is a hole. A sticky router would have counted it, under the bound judge's name."""
    async with opened(server.address(), runs=2) as batch:
        await batch.admit()
        await batch.scored()
        await batch.sealed()
        scoring = await batch.scoring()
        assert not await scored(batch, scoring, "fail", judge="impostor")
        lines = await closed(batch)
    every = prevented(lines)
    told = every["sticky-judge"]
    assert counts(told) == {"verdicts_misattributed": 1, "holes_filled": 1}
    assert out_of(told) == {"verdicts_misattributed": 2, "verdicts_flipped": 1, "holes_filled": 1}
    (proof,) = proofs(told, "verdicts_misattributed")
    assert decisions(lines, proof) == ["judge.commit reject judge_mismatch"]
    assert shares(told) == ["1/1", "1/2"]
    # The hole followed from the refusal: where nothing is refused there is none that could overwrite the verdict.
    assert counts(every["job-id"]) == {"holes_filled": 1}


async def test_a_verdict_of_another_judge_that_was_judged_anew_would_have_stood(server: Target) -> None:
    """Under `review` the run waits for its rebind. The bound judge then said something else."""
    async with opened(server.address(), runs=1, judge_policy="review") as batch:
        await batch.admit()
        await batch.sealed()
        parked = await batch.scoring()
        assert not await scored(batch, parked, "fail", judge="another")
        await batch.bus.rebind(batch.name, parked.ref.run, 1, "candidate", "third")
        assert await scored(batch, await batch.scoring())
        lines = await closed(batch)
    told = prevented(lines)["sticky-judge"]
    assert counts(told) == {"verdicts_misattributed": 1, "verdicts_flipped": 1}
    (proof,) = proofs(told, "verdicts_flipped")
    assert decisions(lines, proof) == ["judge.commit in_doubt judge_mismatch", "histogram.score commit"]


# --- answers and transcripts ------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [True, False])
async def test_a_preempted_worker_that_seals_would_have_been_scored(server: Target, first: bool) -> None:
    """Before its successor's answer where the first is taken, behind it where the last is."""
    async with opened(server.address(), runs=1) as batch:
        await batch.admit()
        silent = await batch.claimed()
        holder = await succeeded(batch, silent)
        for held in (silent, holder) if first else (holder, silent):
            await batch.seal(held, "stale" if held is silent else "true")
        assert await scored(batch, await batch.scoring())
        lines = await closed(batch)
    told = prevented(lines)
    name, other = ("first-200", "job-id") if first else ("job-id", "first-200")
    replaced = {"answers_replaced": 1, "transcripts_replaced": 1}
    mixed = {"transcripts_mixed": 1}
    assert counts(told[name]) == replaced | (mixed if name == "job-id" else {})
    assert counts(told[other]) == (mixed if other == "job-id" else {})
    (proof,) = proofs(told[name], "answers_replaced")
    refusal = "transcript.append reject stale_gen"
    assert decisions(lines, proof) == (
        [refusal, "transcript.append commit"] if first else ["transcript.append commit", refusal]
    )
    assert "of generation 1 (refused as stale_gen) would have been scored, not generation 2's" in proof.says


async def test_the_same_answer_of_a_preempted_worker_replaces_nothing(server: Target) -> None:
    """Both sealed the same text over the same transcript: whoever is taken, the same is scored."""
    async with opened(server.address(), runs=1) as batch:
        await batch.admit()
        silent = await batch.claimed()
        holder = await succeeded(batch, silent)
        await batch.seal(silent)
        await batch.seal(holder)
        assert await scored(batch, await batch.scoring())
        told = prevented(await closed(batch), "first-200")
    assert counts(told["first-200"]) == {}
    assert out_of(told["first-200"])["answers_replaced"] == 1


async def test_a_late_event_would_have_entered_the_next_generations_transcript(server: Target) -> None:
    """However many of them there are, it is one transcript that is mixed; of two that were written."""
    async with opened(server.address(), runs=2) as batch:
        await batch.admit()
        silent = await batch.claimed()
        holder = await succeeded(batch, silent)
        for n in range(3):
            assert (await batch.bus.append(silent.ref, EMPTY_HEAD, 1, [f"late {n}"])).reason == "stale_gen"
        await batch.seal(holder)
        await batch.sealed()
        lines = await exported(batch)
    told = prevented(lines, "job-id")["job-id"]
    assert counts(told) == {"transcripts_mixed": 1}
    assert out_of(told)["transcripts_mixed"] == 2
    (proof,) = proofs(told, "transcripts_mixed")
    assert decisions(lines, proof) == ["transcript.lease commit", "transcript.append reject stale_gen"]
    assert "generation 1" in proof.says
    assert "generation 2, which w2 held" in proof.says


async def test_a_holder_that_writes_out_of_turn_mixes_nothing(server: Target) -> None:
    """It is refused, but the run is its own: there is no other generation whose transcript this would be."""
    async with opened(server.address(), runs=1) as batch:
        await batch.admit()
        held = await batch.claimed()
        assert (await batch.bus.append(held.ref, Digest("f" * 64), 1, ["out of turn"])).reason == "forged_prefix"
        await batch.seal(held)
        assert (await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["afterwards"])).reason is not None
        told = prevented(await exported(batch), "job-id")
    assert counts(told["job-id"]) == {}


async def test_an_answer_that_could_not_be_read_would_have_been_believed(server: Target) -> None:
    """A stream that ended in rubbish came first with 200; the second request brought the answer."""
    async with opened(server.address(), runs=1, limits=LIMITS) as batch:
        await batch.admit()
        held = await batch.claimed()
        call, gen = await opened_call(batch, held)
        corrupt = await batch.bus.bind_call(held.ref, call, gen, answered("rubbish", [Chunk(1, 10)], ok=False))
        assert corrupt.verb is Verb.REPLAY
        call, gen = await opened_call(batch, held)
        assert (await batch.bus.bind_call(held.ref, call, gen, answered("answer", [Chunk(1, 20)]))).applied
        lines = await exported(batch)
    told = prevented(lines)
    assert counts(told["first-200"]) == {"replies_replaced": 1}
    (proof,) = proofs(told["first-200"], "replies_replaced")
    assert decisions(lines, proof) == ["completion.bind replay payload_corrupt", "completion.bind commit"]
    assert counts(told["no-ledger"]) == {"tokens_unaccounted": 10}
    assert out_of(told["no-ledger"])["tokens_unaccounted"] == 30
    (lost,) = proofs(told["no-ledger"], "tokens_unaccounted")
    assert "10 tokens of a request for step c0#1~0.1" in lost.says
    assert "its answer was refused as payload_corrupt" in lost.says


async def test_an_answer_that_comes_again_with_its_missing_part_is_the_same_answer(server: Target) -> None:
    """It was not decidable at first, because a chunk was on its way. Whoever takes the first takes this very one."""
    async with opened(server.address(), runs=1, limits=LIMITS) as batch:
        await batch.admit()
        held = await batch.claimed()
        call, gen = await opened_call(batch, held)
        whole = answered()
        incomplete = await batch.bus.bind_call(held.ref, call, gen, replace(whole, chunks=whole.chunks[:1]))
        assert incomplete.reason == "missing_chunks"
        assert (await batch.bus.bind_call(held.ref, call, gen, whole)).applied
        told = prevented(await exported(batch))
    assert counts(told["first-200"]) == counts(told["no-ledger"]) == {}
    assert out_of(told["first-200"])["replies_replaced"] == 1


# --- effects ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [False, True], ids=["within its bound", "past its bound"])
async def test_a_call_that_had_been_carried_out_would_have_been_sent_twice(server: Target, late: bool) -> None:
    """Its first executor was silent, not dead: it says that it was done, to whoever still listens."""
    async with opened(server.address(), runs=1, limits=TOOLS) as batch:
        await batch.admit()
        tools = await Tools.open(batch)
        await tools.clock(0)
        await tools.put(2)
        call = await tools.sent()
        await tools.done()
        await tools.clock(BOUND_MS + 1 if late else 1)
        await tools.taken(call)
        assert (await tools.complete(call)).applied is not late
        lines = await exported(batch)
    told = prevented(lines, "retry-on-timeout")["retry-on-timeout"]
    assert counts(told) == {"effects_doubled": 1}
    assert out_of(told)["effects_doubled"] == 2
    (proof,) = proofs(told, "effects_doubled")
    ends = ["outbox.recover compensate", "outbox.complete reject already_final"]
    heard = ["outbox.recover in_doubt awaiting_ack", "outbox.complete commit"]
    assert decisions(lines, proof) == ["outbox.sent commit", *(ends if late else heard)]


async def test_a_call_of_which_nobody_said_what_became_is_not_called_doubled(server: Target) -> None:
    """It would have been sent again, that is all that the history shows: its executor never came back."""
    async with opened(server.address(), runs=1, limits=TOOLS) as batch:
        await batch.admit()
        tools = await Tools.open(batch)
        await tools.clock(0)
        await tools.put(1)
        call = await tools.sent()
        for ms in (1, 2, BOUND_MS + 1):
            await tools.clock(ms)
            await tools.taken(call)
        lines = await exported(batch)
    told = prevented(lines, "retry-on-timeout")["retry-on-timeout"]
    assert counts(told) == {"effects_repeated_in_doubt": 1}
    (proof,) = proofs(told, "effects_repeated_in_doubt")
    assert decisions(lines, proof) == ["outbox.sent commit", "outbox.recover in_doubt awaiting_ack"]
    assert proof.says.endswith("whether it had been carried out is not known")


async def test_a_call_that_had_failed_is_doubled_by_nobody(server: Target) -> None:
    """Its executor came back and said that the tool did nothing: to send it again repeats no effect."""
    async with opened(server.address(), runs=1, limits=TOOLS) as batch:
        await batch.admit()
        tools = await Tools.open(batch)
        await tools.clock(0)
        await tools.put(1)
        call = await tools.sent()
        await tools.clock(1)
        await tools.taken(call)
        assert (await tools.complete(call, ok=False)).applied
        told = prevented(await exported(batch), "retry-on-timeout")
    assert counts(told["retry-on-timeout"]) == {}


async def test_a_call_that_had_not_left_is_nobodys_second(server: Target) -> None:
    """Its executor died between claim and call. Whoever takes the message over calls for the first time."""
    async with opened(server.address(), runs=1, limits=TOOLS) as batch:
        await batch.admit()
        tools = await Tools.open(batch)
        await tools.put(1)
        claimed = await tools.claimed()
        again = await tools.taken(claimed, W2)
        assert (await tools.send(again)).applied
        assert (await tools.complete(again)).applied
        told = prevented(await exported(batch), "retry-on-timeout")
    assert counts(told["retry-on-timeout"]) == {}
    assert out_of(told["retry-on-timeout"])["effects_doubled"] == 1


async def test_an_executor_that_never_sent_the_call_proves_nothing(server: Target) -> None:
    """It had been given up before it called. That it speaks of a success is its word against the history's."""
    async with opened(server.address(), runs=1, limits=TOOLS) as batch:
        await batch.admit()
        tools = await Tools.open(batch)
        await tools.clock(0)
        await tools.put(1)
        given_up = await tools.claimed()
        sends = await tools.taken(given_up, W2)
        assert (await tools.send(sends)).applied
        await tools.taken(sends)
        assert (await tools.complete(given_up)).reason == "not_claimed"
        told = prevented(await exported(batch), "retry-on-timeout")
    assert counts(told["retry-on-timeout"]) == {"effects_repeated_in_doubt": 1}


async def test_a_second_request_beside_one_under_way_would_have_left(server: Target) -> None:
    """The first was asked and has not ended: the step has its place, and whoever asks again is refused."""
    async with opened(server.address(), runs=1, limits=LIMITS) as batch:
        await batch.admit()
        held = await batch.claimed()
        call, gen = await opened_call(batch, held)
        for _ in range(2):
            assert (await batch.bus.open_call(held.ref, asked(held.ref))).reason == "step_in_flight"
        await batch.bus.bind_call(held.ref, call, gen, answered())
        lines = await exported(batch)
    told = prevented(lines, "retry-on-timeout")["retry-on-timeout"]
    assert counts(told) == {"requests_doubled": 1}
    assert out_of(told)["requests_doubled"] == 1
    (proof,) = proofs(told, "requests_doubled")
    assert decisions(lines, proof) == ["completion.open commit", "admission.acquire reject step_in_flight"]


# --- tokens -----------------------------------------------------------------------------------------------


async def test_tokens_of_an_answer_that_nobody_took_are_in_no_usage(server: Target) -> None:
    """The preempted worker's stream cost 50. Its answer is refused, so no usage of it is ever added up."""
    async with opened(server.address(), runs=1, limits=LIMITS) as batch:
        await batch.admit()
        silent = await batch.claimed()
        call, gen = await opened_call(batch, silent)
        await batch.bus.flush(silent.ref, call, [Chunk(1, 20)])
        await succeeded(batch, silent)
        late = await batch.bus.bind_call(silent.ref, call, gen, answered("late", [Chunk(2, 30)]))
        assert late.reason == "stale_lease"
        lines = await exported(batch)
        spent = (await batch.bus.counters(batch.name)).spent
    told = prevented(lines, "no-ledger")["no-ledger"]
    assert counts(told) == {"tokens_unaccounted": spent} == {"tokens_unaccounted": 50}
    (proof,) = proofs(told, "tokens_unaccounted")
    assert decisions(lines, proof) == [
        "ledger.chunk commit",
        "ledger.chunk commit",
        "completion.bind reject stale_lease",
    ]
    assert proof.says.startswith("50 tokens of a request for step c0#1~0.1")


async def test_what_a_lost_request_was_charged_unseen_is_counted_apart(server: Target) -> None:
    """20 tokens arrived; the rest of its estimate was charged when its place was swept, and may be a guess."""
    async with opened(server.address(), runs=1, limits=LIMITS) as batch:
        await batch.admit()
        held = await batch.claimed()
        await at(batch, START_MS)
        call, _ = await opened_call(batch, held)
        await batch.bus.drop_call(held.ref, call, [Chunk(1, 20)], cancelled=False)
        await at(batch, START_MS + 10**6)
        assert (await batch.bus.sweep(batch.name, 10, "model")).answer["freed"] == 1
        lines = await exported(batch)
        spent = (await batch.bus.counters(batch.name)).spent
    told = prevented(lines, "no-ledger")["no-ledger"]
    assert counts(told) == {"tokens_unaccounted": 20, "tokens_settled_unseen": 80}
    assert out_of(told)["tokens_unaccounted"] == out_of(told)["tokens_settled_unseen"] == spent == 100
    (proof,) = proofs(told, "tokens_settled_unseen")
    assert decisions(lines, proof)[-1] == "ledger.reconcile commit"


async def test_a_request_for_which_the_budget_had_no_room_would_have_left(server: Target) -> None:
    """Nothing has been spent yet, so usage says that there is room. What is reserved says otherwise."""
    async with opened(server.address(), runs=2, limits=dict(LIMITS) | {"budget": 150}) as batch:
        await batch.admit()
        await opened_call(batch, await batch.claimed())
        held = await batch.claimed()
        assert (await batch.bus.open_call(held.ref, asked(held.ref))).reason == "over_budget"
        lines = await exported(batch)
    told = prevented(lines, "no-ledger")["no-ledger"]
    assert counts(told) == {"budget_overrun": 1}
    assert out_of(told)["budget_overrun"] == 2
    (proof,) = proofs(told, "budget_overrun")
    assert decisions(lines, proof) == ["ledger.admit reject over_budget"]
    assert "100 of 150 spent or reserved: the answers that were taken had cost 0" in proof.says


async def test_a_budget_that_usage_alone_uses_up_is_nobodys_overrun(server: Target) -> None:
    """Whoever adds usage up would have stopped here, too."""
    async with opened(server.address(), runs=1, limits=dict(LIMITS) | {"budget": 100}) as batch:
        await batch.admit()
        held = await batch.claimed()
        call, gen = await opened_call(batch, held)
        bound = await batch.bus.bind_call(held.ref, call, gen, answered("said", [Chunk(1, 100)]))
        more = asked(held.ref, n=2, parent=bound.answer["head"], seq=2)
        assert (await batch.bus.open_call(held.ref, more)).reason == "over_budget"
        told = prevented(await exported(batch), "no-ledger")
    assert counts(told["no-ledger"]) == {}
    assert out_of(told["no-ledger"])["budget_overrun"] == 2


# --- every claim ------------------------------------------------------------------------------------------


@pytest.fixture
async def whole(server: Target) -> AsyncIterator[list[bytes]]:
    """A history with every fence, deaths and late messages among them."""
    batch = await Batch.open(server.address(), limits=FIRST_BUDGET)
    yield await whole_history(batch)
    await batch.aclose()


def test_no_claim_is_without_the_entries_that_prove_it(whole: list[bytes]) -> None:
    """Each proof names lines that are there, in their order; each count has its proofs, and fits its denominator."""
    told = prevented(whole)
    assert sum(claim.count for one in told.values() for claim in one.claims) > 0
    order = {parsed(line)["id"]: index for index, line in enumerate(whole[1:-1])}
    for one in told.values():
        for claim in one.claims:
            assert claim.count <= claim.of, claim
            assert bool(claim.proofs) is bool(claim.count), claim
            assert claim.unit == "tokens" or len(claim.proofs) == claim.count, claim
            for proof in claim.proofs:
                places = [order[entry] for entry in proof.entries]
                assert places == sorted(set(places)), proof
                assert proof.says, proof


def test_what_an_export_does_not_hold_is_not_claimed(whole: list[bytes]) -> None:
    """The late seal was refused before its text was looked at: its transcript was another, its answer is not known."""
    told = prevented(whole, "first-200")["first-200"]
    assert {claim.what: claim.count for claim in told.claims}["answers_replaced"] == 0
    (proof,) = proofs(told, "transcripts_replaced")
    assert decisions(whole, proof) == ["run.seal reject run_mismatch", "transcript.append commit"]


def test_a_history_that_somebody_made_up_is_read_all_the_same(whole: list[bytes]) -> None:
    """What a step refused is derived by nobody, so it may hold anything; no policy falls over it."""
    names = ("bin", "gen", "run", "head", "why", "consumer", "step", "lease_id", "attempt", "intent_id", "ok")
    odd: Mapping[str, object] = {name: ["odd", {"odd": None}] for name in names}
    forged = [whole[0]]
    for line in whole[1:-1]:
        said = parsed(line)
        said["envelope"] = {name: odd.get(name, value) for name, value in said["envelope"].items()}
        forged.append(lined(said))
    told = prevented(rechained([*forged, whole[-1]]))
    assert tuple(told) == NAMES


def test_memory_does_not_grow_with_the_lines(whole: list[bytes]) -> None:
    """A worker that is stuck in a loop presents the same late event for ever: one proof is kept, not each."""
    read = Lines("h.jsonl")
    header = read.first(whole[0])
    lines = [said for said in map(read.next, whole[1:-1]) if isinstance(said, Told)]
    late = next(told for told in lines if (told.op, told.verb, told.reason) == ("append", "reject", "stale_gen"))

    def kept(repeats: int) -> int:
        policies = Policies()
        policies.start(header.policy)
        tracemalloc.start()
        for told in lines:
            policies.feed(told)
        for n in range(repeats):
            policies.feed(late._replace(id=f"{2 * 10**12 + n}-0/1", entry=f"{2 * 10**12 + n}-0"))
        policies.finish()
        now, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return now

    few, many = kept(1_000), kept(5_000)
    assert many < few * 1.2, (few, many)


@pytest.mark.parametrize("reason", ["server_changed", "stale_lease"])
def test_what_was_meant_for_the_server_before_its_restart_did_not_arrive(whole: list[bytes], reason: str) -> None:
    """Whoever sent it was told so and sent it again: it would be one verdict, counted twice. Another refusal counts."""
    edited = list(whole)
    again = [index for index, line in enumerate(whole) if b'"run","op":"score","verb":"duplicate"' in line]
    for index in again:
        edited[index] = lined(parsed(whole[index]) | {"verb": "reject", "reason": reason})
    told = prevented(rechained(edited), "mutable-mean")["mutable-mean"]
    assert len(again) == 2
    assert counts(told) == ({} if reason == "server_changed" else {"verdicts_counted_twice": 2})


def lined(said: Mapping[str, object]) -> bytes:
    """A line of an export; its chain is somebody else's."""
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def test_policies_are_shown_in_one_order_and_once(whole: list[bytes]) -> None:
    """However they were asked for."""
    assert tuple(prevented(whole, "no-ledger", "first-200", "no-ledger")) == ("first-200", "no-ledger")
    assert tuple(prevented(whole, "job-id", "all")) == NAMES


def test_an_unknown_policy_is_one_line_with_the_nearest() -> None:
    """And where nothing is near, with all of them."""
    with pytest.raises(InputError, match=r"^no policy 'first200' \(did you mean first-200\?\)$"):
        Policies(["first200"])
    with pytest.raises(InputError, match=r"one of first-200, job-id, .*, all"):
        Policies(["zzz"])


# --- as a command -----------------------------------------------------------------------------------------


def replayed(file: Path, *options: str) -> Result:
    """`evalbus replay`, on a file."""
    return CliRunner().invoke(app, ["replay", str(file), *options], env={"COLUMNS": "100"})


@pytest.fixture
def kept(whole: list[bytes], tmp_path: Path) -> Path:
    """That history in a file."""
    file = tmp_path / "h.jsonl"
    file.write_bytes(b"".join(whole))
    return file


def test_claims_are_no_violations(kept: Path) -> None:
    """They say what did not happen: the history holds, and the exit is 0."""
    done = replayed(kept, "--policy", "job-id")
    assert done.exit_code == 0, done.output
    assert "\njob-id\n  results are kept under the run's id alone" in done.output
    assert re.search(r"verdicts flipped +2 of 2 verdicts\n", done.output)
    assert re.search(r"at the close +0\.0%  0 of 2\n", done.output)
    assert re.search(r"closed, what counts +100\.0%  2 of 2\n", done.output)
    assert "first-200" not in done.output
    assert "would stand" not in done.output


def test_why_lists_every_proof_with_its_entries(whole: list[bytes], kept: Path) -> None:
    """Under its claim, with the ids that `grep` finds in the file."""
    done = replayed(kept, "--policy", "all", "--why")
    assert done.exit_code == 0, done.output
    every = [proof for one in prevented(whole).values() for claim in one.claims for proof in claim.proofs]
    assert every
    for proof in every:
        assert f"    {proof.run}: {proof.says} [{', '.join(proof.entries)}]\n" in done.output


def test_programs_get_all_of_it_as_json(whole: list[bytes], kept: Path, tmp_path: Path) -> None:
    """The proofs and the whole rate, beside the head and the snapshot that they belong to."""
    said_in = tmp_path / "prevented.json"
    assert replayed(kept, "--policy", "mutable-mean", "--json", str(said_in)).exit_code == 0
    said = json.loads(said_in.read_text("utf-8"))
    last = parsed(whole[-1])
    assert (said["head"], said["snapshot_id"]) == (last["head"], last["snapshot"]["snapshot_id"])
    assert (said["closed"]["passed"], said["closed"]["counted"]) == (2, 2)
    (one,) = said["policies"]
    (derived,) = prevented(whole, "mutable-mean").values()
    assert one == json.loads(json.dumps(asdict(derived)))


def test_of_a_history_that_is_not_true_nothing_is_claimed(whole: list[bytes], kept: Path) -> None:
    """Exit 5, as without a policy: whoever edits a verdict is found before anybody counts with it."""
    late = [index for index, line in enumerate(whole) if b'"run","op":"score","verb":"duplicate"' in line]
    said = parsed(whole[late[0]])
    said["envelope"]["bin"] = "pass"
    kept.write_bytes(b"".join([*whole[: late[0]], lined(said), *whole[late[0] + 1 :]]))
    done = replayed(kept, "--policy", "all")
    assert done.exit_code == 5
    assert "job-id" not in done.output


@pytest.mark.parametrize("option", [["--why"], ["--json", "x.json"]], ids=["why", "json"])
def test_what_is_about_policies_needs_one(kept: Path, option: list[str]) -> None:
    """One line that says which, and nothing is read."""
    done = replayed(kept, *option)
    assert done.exit_code == 2
    assert f"{option[0]} is about what a policy would have done (name one: --policy all)" in done.output
    assert not Path("x.json").exists()


def test_what_is_claimed_does_not_take_the_place_of_the_history(kept: Path, tmp_path: Path) -> None:
    """It may be the only copy of the proof: neither under its own name nor under another is it written over."""
    before, link = kept.read_bytes(), tmp_path / "link.json"
    link.symlink_to(kept)
    for target in (kept, link):
        done = replayed(kept, "--policy", "all", "--json", str(target))
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
        assert f"{target}: is the history that this would be made from (name another file)" in done.stderr
        assert kept.read_bytes() == before


async def test_an_open_batch_has_no_number_to_compare_with(server: Target, tmp_path: Path) -> None:
    """What a dashboard would show is shown as such; that nothing counts yet is said."""
    async with opened(server.address(), runs=2) as batch:
        await batch.admit()
        await batch.scored()
        file = tmp_path / "h.jsonl"
        file.write_bytes(b"".join(await exported(batch)))
    said_in = tmp_path / "prevented.json"
    done = replayed(file, "--policy", "all", "--json", str(said_in))
    assert done.exit_code == 0, done.output
    assert "verdicts counted twice      0 of 1 verdicts that arrived" in done.output
    assert "it would show" not in done.output
    assert done.output.endswith("the batch is open: it has no pass rate yet that another could be compared with\n")
    said = json.loads(said_in.read_text("utf-8"))
    assert (said["closed"], [one["rate"] for one in said["policies"]]) == (None, [[]] * len(NAMES))


async def test_a_batch_below_its_quorum_has_no_number_either(server: Target, tmp_path: Path) -> None:
    """It has ended, and a dashboard would have shown a rate of what there is."""
    async with opened(server.address(), runs=2, quorum=2) as batch:
        await batch.admit()
        await batch.scored()
        await batch.end((await batch.claimed()).ref.run)
        snapshot = Snapshot.from_rows(await batch.bus.rows(batch.name, batch.runs), batch.spec)
        assert (await batch.bus.close(batch.name, snapshot.snapshot_id, 1)).reason == "below_quorum"
        file = tmp_path / "h.jsonl"
        file.write_bytes(b"".join(await exported(batch)))
    done = replayed(file, "--policy", "mutable-mean")
    assert done.exit_code == 0, done.output
    assert re.search(r"in the end +100\.0%  1 of 1\n", done.output)
    assert re.search(r"closed, what counts +none  below its quorum\n", done.output)


def test_the_rate_is_drawn_in_equal_steps_of_time() -> None:
    """It stands still for as long as the dashboard did, and begins and ends where that did."""
    drawn = sparkline([RatePoint(0, 1, 1), RatePoint(900, 1, 2), RatePoint(1_000, 1, 10)])
    assert drawn[0] == "█"
    assert drawn[-1] == "▁"
    assert drawn.count("█") > 8 * drawn.count("▅") > 0
    assert set(sparkline([RatePoint(5, 0, 1), RatePoint(5, 1, 2)])) == {"▅"}
    assert sparkline([RatePoint(0, 1, 1), RatePoint(10, 0, 0)]).endswith(" ")
