"""The typed operations: the contract's names as signatures, enums and fields; and what only they do."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import random
from collections.abc import AsyncIterator, Mapping
from enum import StrEnum

import pytest

from bus.chain import EMPTY_HEAD, next_head
from bus.connection import Endpoint
from bus.contract import CONTRACT, OpContract
from bus.envelopes import MAX_PAYLOAD
from bus.errors import InputError
from bus.export import lines
from bus.fences.admission import Admission, AdmissionReason, AdmissionResult
from bus.fences.completion import Completion, CompletionReason, CompletionResult
from bus.fences.fence import Channel
from bus.fences.histogram import Histogram, HistogramReason, HistogramResult
from bus.fences.indoubt import InDoubt, InDoubtReason, InDoubtResult
from bus.fences.join import CaseState, Join, JoinReason, JoinResult, window_of
from bus.fences.judge import Judge, JudgeReason, JudgeResult
from bus.fences.ledger import AttemptState, Ledger, LedgerReason, LedgerResult, estimate_from
from bus.fences.outbox import IntentState, Outbox, OutboxReason, OutboxResult
from bus.fences.plane import PlaneFence, PlaneReason, PlaneResult
from bus.fences.sandbox import Sandbox, SandboxReason, SandboxResult, StepState
from bus.fences.transcript import Transcript, TranscriptReason, TranscriptResult
from bus.fences.workspace import Workspace, WorkspaceReason, WorkspaceResult
from bus.history import read_history
from bus.keys import BatchKeys
from bus.link import Link
from bus.models import build
from bus.models.histogram import Histogram as HistogramModel
from bus.port import BatchSpec
from bus.redis_bus import RedisBus
from bus.scripts import script
from bus.server_player import FENCES
from bus.target import Target
from bus.types import BatchId, Digest, Gen, LeaseId, Plane, RunId, Verb
from tests.both import both
from tests.calls import Call
from tests.waiting import soon
from workers.runtime import SystemRuntime

REASONS: Mapping[str, type[StrEnum]] = {
    "join": JoinReason,
    "plane": PlaneReason,
    "transcript": TranscriptReason,
    "histogram": HistogramReason,
    "judge": JudgeReason,
    "sandbox": SandboxReason,
    "workspace": WorkspaceReason,
    "completion": CompletionReason,
    "indoubt": InDoubtReason,
    "outbox": OutboxReason,
    "ledger": LedgerReason,
    "admission": AdmissionReason,
}
RESULTS: Mapping[str, type] = {
    "join": JoinResult,
    "plane": PlaneResult,
    "transcript": TranscriptResult,
    "histogram": HistogramResult,
    "judge": JudgeResult,
    "sandbox": SandboxResult,
    "workspace": WorkspaceResult,
    "completion": CompletionResult,
    "indoubt": InDoubtResult,
    "outbox": OutboxResult,
    "ledger": LedgerResult,
    "admission": AdmissionResult,
}
BESIDE: Mapping[str, set[str]] = {
    "join": {"run"},
    "sandbox": {"run"},
    "workspace": {"run"},
    "outbox": {"run"},
    "ledger": {"run"},
    "admission": {"run", "step"},
}
"""Fence → what its operations name beside the contract's arguments: the row in which their state is kept."""
OPS = [
    pytest.param(fence.name, op, id=f"{fence.name}-{op.name}")
    for fence in CONTRACT.values()
    for op in fence.ops.values()
]
BATCH = BatchId("b")
ONE, TWO = RunId("c#1"), RunId("c#2")
LEASE = LeaseId("a" * 32)


@pytest.fixture
async def channel(server: Target) -> AsyncIterator[Channel]:
    """The way to a batch of two runs, a quorum of one, and one place at its desk."""
    runtime = SystemRuntime()
    bus, link = RedisBus(Endpoint(server), runtime), Link(Endpoint(server), runtime)
    await bus.create(BatchSpec(BATCH, "s", Digest("d"), "", 2, 1, ("pass", "fail"), 1, 2, 5, 1000))
    yield Channel(link, BatchKeys(Plane.LIVE, BATCH), runtime)
    link.close()
    await bus.aclose()


def test_every_fence_of_the_contract_has_typed_operations() -> None:
    """What is in the contract and cannot be called is not built."""
    assert FENCES.keys() == REASONS.keys() == RESULTS.keys() == CONTRACT.keys()


@pytest.mark.parametrize("fence", CONTRACT)
def test_the_reasons_of_a_fence_are_those_of_the_contract(fence: str) -> None:
    """A reason that the enum lacks would be an exception in the caller's hands; one too many is dead."""
    named = {outcome.reason for op in CONTRACT[fence].ops.values() for outcome in op.outcomes if outcome.reason}
    assert set(REASONS[fence]) == named | {"schema"}


@pytest.mark.parametrize("fence", CONTRACT)
def test_a_result_has_the_answer_fields_of_the_contract(fence: str) -> None:
    """Beside the verb and the reason; all may be absent."""
    answers = {name for op in CONTRACT[fence].ops.values() for name in op.answers}
    fields = {field.name: field.default for field in dataclasses.fields(RESULTS[fence])}
    assert fields.keys() == answers | {"verb", "reason"}
    assert all(fields[name] is None for name in answers)


@pytest.mark.parametrize(("fence", "op"), OPS)
def test_an_operation_takes_the_arguments_of_the_contract(fence: str, op: OpContract) -> None:
    """By name. Beside them some fences name where their state is kept."""
    method = getattr(FENCES[fence], op.name)
    assert inspect.iscoroutinefunction(method)
    taken = set(inspect.signature(method).parameters) - {"self"}
    beside = BESIDE.get(fence, set())
    assert taken - beside == {arg.name for arg in op.args} - beside


@pytest.mark.parametrize(("fence", "op"), OPS)
def test_the_header_of_a_script_admits_exactly_the_outcomes_of_the_contract(fence: str, op: OpContract) -> None:
    """The loader raises for an answer that the header does not admit, so the header must be right."""
    assert script(f"{fence}.{op.name}").returns == {str(outcome) for outcome in op.outcomes} | {"reject schema"}


async def test_a_successor_resolves_what_a_dead_holder_intended(channel: Channel) -> None:
    """The holder dies between its effect and its event; the place is named to whoever leases the run next."""
    transcripts = Transcript(channel)
    first = await transcripts.lease(ONE, LEASE)
    assert first == TranscriptResult(Verb.COMMIT, None, gen=Gen(1), head=EMPTY_HEAD, length=0, unresolved=())
    await transcripts.intend(ONE, LEASE, Gen(1), EMPTY_HEAD, 1, "call")

    heir = LeaseId("b" * 32)
    second = await transcripts.lease(ONE, heir)
    assert (second.gen, second.unresolved) == (2, (1,))
    late = await transcripts.append(ONE, LEASE, Gen(1), EMPTY_HEAD, 1, "late", intent="call")
    assert (late.verb, late.reason) == (Verb.REJECT, TranscriptReason.STALE_GEN)
    assert (await transcripts.seal(ONE, heir, Gen(2), EMPTY_HEAD)).reason is TranscriptReason.UNRESOLVED_INTENT
    resolved = await transcripts.append(ONE, heir, Gen(2), EMPTY_HEAD, 1, "recovered", intent="call")
    assert resolved.head == next_head(EMPTY_HEAD, "recovered")
    assert (await transcripts.resume(ONE, heir, Gen(2))).length == 1
    assert (await transcripts.seal(ONE, heir, Gen(2), resolved.head)).applied
    assert (await transcripts.fence(ONE, Gen(2))).applied


async def test_an_event_over_the_limit_is_not_sent(channel: Channel) -> None:
    """The server keeps every event for good: what is large travels as an artifact, by its digest."""
    transcripts = Transcript(channel)
    await transcripts.lease(ONE, LEASE)
    with pytest.raises(InputError, match="an event of 262145 bytes is over the limit"):
        await transcripts.append(ONE, LEASE, Gen(1), EMPTY_HEAD, 1, "x" * (MAX_PAYLOAD + 1))
    assert (await transcripts.append(ONE, LEASE, Gen(1), EMPTY_HEAD, 1, "é" * (MAX_PAYLOAD // 2))).applied


async def test_a_close_computes_the_snapshot_that_the_model_computes(channel: Channel) -> None:
    """One run scored, one a hole: two programs, one name for the set, and the same number read from it."""
    scores = Histogram(channel)
    model = build("histogram", {"intended": [ONE, TWO], "quorum": 1, "bins": ["pass", "fail"], "max_in_flight": 2})
    assert isinstance(model, HistogramModel)
    for run in (ONE, TWO):
        assert (await scores.declare(run)).verb is Verb.COMMIT
        assert (await scores.declare(run)).verb is Verb.DUPLICATE
    await scores.fence(TWO, 3, "⊕/art")
    await scores.score(TWO, "⊕/art", 3, "pass", "0.5")
    await scores.abandon(ONE, 0, "poison")
    await scores.drain()
    closed = await scores.close()

    model.fence(run=TWO, epoch=3, digest="⊕/art")
    model.score(run=TWO, digest="⊕/art", epoch=3, bin="pass", value="0.5")
    model.abandon(run=ONE, epoch=0, why="poison")
    assert (closed.verb, closed.snapshot_id, closed.accepted) == (Verb.COMMIT, model.snapshot(), 1)
    assert (await Histogram(channel).close()).snapshot_id == closed.snapshot_id
    rate = await scores.pass_rate()
    assert (rate.passed, rate.accepted, rate.holes, rate.snapshot_id) == (1, 1, 1, closed.snapshot_id)


async def test_a_snapshot_that_was_read_before_the_last_run_ended_closes_nothing(channel: Channel) -> None:
    """The race is lost by the planner that read early: its id names another set, although `accepted` is the same."""
    scores = Histogram(channel)
    for run in (ONE, TWO):
        await scores.declare(run)
    await scores.fence(ONE, 1, "art")
    await scores.score(ONE, "art", 1, "pass", "1")
    await scores.drain()
    early = await scores.snapshot()
    await scores.abandon(TWO, 0, "poison")

    counts = {"accepted": early.accepted, "holes": len(early.holes)}
    late = await channel.decide("histogram.close", {"snapshot_id": early.snapshot_id, **counts})
    assert (late.verb, late.reason) == (Verb.IN_DOUBT, "in_flight")
    closed = await scores.close()
    assert closed.verb is Verb.COMMIT
    assert closed.snapshot_id == (await scores.snapshot()).snapshot_id != early.snapshot_id


async def test_a_batch_that_is_not_there_is_one_clear_line(channel: Channel) -> None:
    """A misspelt name has no bins to read a rate from."""
    nowhere = dataclasses.replace(channel, keys=BatchKeys(Plane.LIVE, BatchId("nowhere")))
    with pytest.raises(InputError, match=r"^no batch 'nowhere' on this server$"):
        await Histogram(nowhere).close()


async def test_a_judge_that_was_not_observed_signs_nothing(channel: Channel) -> None:
    """A scorer that could not see who answered says so, and is refused: no default stands in for it."""
    judges = Judge(channel)
    bound = await judges.mint(ONE, "candidate", "judge")
    assert (bound.candidate, bound.judge, bound.epoch) == ("candidate", "judge", 1)
    assert (await judges.commit(ONE, "candidate", None, 1, "d")).reason is JudgeReason.UNBOUND
    assert (await judges.rebind(ONE, 1, "candidate", "other")).epoch == 2
    assert (await judges.commit(ONE, "candidate", "judge", 1, "d")).reason is JudgeReason.STALE_EPOCH
    assert (await judges.commit(ONE, "candidate", "judge", 2, "d")).reason is JudgeReason.JUDGE_MISMATCH
    assert await judges.commit(ONE, "candidate", "other", 2, "d") == JudgeResult(Verb.COMMIT, None, replays=0)


async def test_a_place_whose_answer_was_lost_is_found_again_and_taken_once(channel: Channel) -> None:
    """The caller that draws its own lease id asks again with it: also when the place was given back meanwhile."""
    desk = Admission(channel)
    taken = await desk.acquire(ONE, "step", LEASE)
    assert taken == AdmissionResult(Verb.COMMIT, None, lease=LEASE, gen=1)
    assert await desk.acquire(ONE, "step", LEASE) == AdmissionResult(Verb.DUPLICATE, None, lease=LEASE, gen=1)
    assert (await desk.acquire(ONE, "step")).reason is AdmissionReason.STEP_IN_FLIGHT
    assert (await desk.acquire(ONE, "other")).reason is AdmissionReason.BOUND_FULL
    assert (await desk.expire(ONE, "step", LEASE)).gen == 2
    assert (await desk.reclaim(ONE, "step", LEASE, cancelled=False)).reason is AdmissionReason.CANCEL_PENDING
    assert (await desk.reclaim(ONE, "step", LEASE, cancelled=True)).applied
    assert await desk.acquire(ONE, "step", LEASE) == AdmissionResult(Verb.DUPLICATE, None, lease=LEASE, gen=1)
    assert (await desk.acquire(ONE, "other", LEASE)).reason is AdmissionReason.LEASE_REUSED


INTENT, ARGS = "c#1/s1/0", {"b": [1, {"d": None}], "a": "é"}


async def test_a_tools_arguments_are_those_that_were_put_first(channel: Channel) -> None:
    """A planner that was restarted samples others, or spells the same ones in another order."""
    outbox = Outbox(channel)
    first = await outbox.put(ONE, INTENT, 0, "book", ARGS)
    row = OutboxResult(Verb.COMMIT, None, gen=0, state=IntentState.QUEUED, tool="book", args=ARGS)
    assert first == row
    again = await outbox.put(ONE, INTENT, 7, "book", dict(reversed(ARGS.items())))
    assert again == dataclasses.replace(row, verb=Verb.DUPLICATE)
    for args in ({"b": [True, {"d": None}], "a": "é"}, {"b": [1.0, {"d": None}], "a": "é"}, {}):
        fresh = await outbox.put(ONE, INTENT, 0, "book", args)
        assert (fresh.reason, fresh.tool, fresh.args) == (OutboxReason.ARGS_MISMATCH, "book", ARGS)
    assert (await outbox.put(ONE, INTENT, 0, "pay", ARGS)).reason is OutboxReason.ARGS_MISMATCH


async def test_arguments_that_are_no_json_object_make_no_job(channel: Channel) -> None:
    """What no executor could read would be claimed again and again: from Python, and past it."""
    outbox = Outbox(channel)
    for args in ({"a": float("nan")}, {"a": "\ud800"}):
        assert (await outbox.put(ONE, INTENT, 0, "book", args)).reason is OutboxReason.SCHEMA
    put = {"run": ONE, "intent_id": INTENT, "gen": 0, "tool": "book"}
    for text in (b"", b"[]", b'{"a":', b"{} {}"):
        assert (await channel.decide("outbox.put", put, argv={"args": text})).reason == "schema", text
    assert (await outbox.recover(ONE, INTENT)).reason is OutboxReason.UNKNOWN_INTENT


async def test_an_outcome_without_its_keys_is_unkeyed_before_it_is_malformed(channel: Channel) -> None:
    """Of a missing executor and a missing observation, the executor is told."""
    outbox = Outbox(channel)
    keyless = {"run": ONE, "intent_id": INTENT, "gen": 0, "ok": True}
    assert (await outbox.send("complete", keyless)).reason == "unkeyed"
    assert (await outbox.send("complete", {**keyless, "executor": "e1"})).reason == "schema"


async def test_an_executor_is_not_taken_for_another_of_a_longer_name(channel: Channel) -> None:
    """`a` claimed by `b:c` is not `a:b` claimed by `c`."""
    outbox = Outbox(channel)
    for intent_id in ("a", "a:b"):
        await outbox.put(ONE, intent_id, 0, "book", {})
    await outbox.claim(ONE, "a", 0, "b:c")
    assert (await outbox.claim(ONE, "a:b", 0, "c")).applied


async def test_silence_is_never_over_where_no_bound_was_declared(channel: Channel) -> None:
    """A batch that names no bound and no inverse gives nobody the right to call a call lost, nor to undo it."""
    outbox = Outbox(channel)
    await outbox.put(ONE, INTENT, 0, "book", ARGS)
    assert (await outbox.claim(ONE, INTENT, 0, "e1")).args == ARGS
    assert (await outbox.sent(ONE, INTENT, 0, "e1")).applied
    silent = await outbox.recover(ONE, INTENT)
    assert (silent.verb, silent.reason) == (Verb.IN_DOUBT, OutboxReason.AWAITING_ACK)
    await channel.link.command("HSET", channel.keys.batch_row, "ack_bound_ms", 0)
    assert (await outbox.recover(ONE, INTENT)).reason is OutboxReason.STUCK
    assert (await outbox.recover(ONE, INTENT)).state is IntentState.STUCK


async def test_an_undo_that_was_made_settles_what_it_undoes(channel: Channel) -> None:
    """The executor dies after its call; the planner, who has given it up, finds the booking cancelled."""
    outbox = Outbox(channel)
    await channel.link.command("HSET", channel.keys.batch_row, "ack_bound_ms", 0, "inverses", '{"book": "cancel"}')
    await outbox.put(ONE, INTENT, 0, "book", ARGS)
    await outbox.claim(ONE, INTENT, 0, "e1")
    await outbox.sent(ONE, INTENT, 0, "e1")
    assert (await outbox.advance(ONE, INTENT, 0)).gen == 1
    lost = await outbox.recover(ONE, INTENT)
    assert lost == OutboxResult(Verb.COMPENSATE, None, state=IntentState.COMPENSATING, undo_id=f"{INTENT}~undo")
    assert await outbox.recover(ONE, INTENT) == lost
    job = await outbox.claim(ONE, f"{INTENT}~undo", 0, "e2")
    assert (job.tool, job.args) == ("cancel", ARGS)
    await outbox.sent(ONE, f"{INTENT}~undo", 0, "e2")
    done = await outbox.complete(ONE, f"{INTENT}~undo", 0, "e2", ok=True, observation="gone", echo=f"{INTENT}~undo")
    assert done.state is IntentState.COMMITTED
    assert (await outbox.recover(ONE, INTENT)).state is IntentState.COMPENSATED
    assert (await outbox.recover(ONE, f"{INTENT}~undo")).observation == "gone"


async def test_an_undo_that_failed_leaves_both_for_a_person(channel: Channel) -> None:
    """The booking can't be cancelled: nobody tries a third thing in silence, and the intent is not called undone."""
    outbox = Outbox(channel)
    await channel.link.command("HSET", channel.keys.batch_row, "ack_bound_ms", 0, "inverses", '{"book": "cancel"}')
    for intent_id in (INTENT, f"{INTENT}~undo"):
        await outbox.put(ONE, intent_id, 0, "book", ARGS)
        await outbox.claim(ONE, intent_id, 0, "e1")
        await outbox.sent(ONE, intent_id, 0, "e1")
        if intent_id == INTENT:
            assert (await outbox.recover(ONE, INTENT)).verb is Verb.COMPENSATE
    assert (await outbox.complete(ONE, f"{INTENT}~undo", 0, "e1", ok=False, observation="no")).applied
    assert (await outbox.recover(ONE, INTENT)).state is IntentState.STUCK
    assert (await outbox.put(ONE, f"{INTENT}~undo", 0, "cancel", ARGS)).reason is OutboxReason.SCHEMA


async def _held(channel: Channel, key: str = "k1", ttl_ms: int = 60_000) -> LeaseId:
    """A call of run ONE that has slot `gpu`."""
    granted = await InDoubt(channel).reserve(ONE, "gpu", key, 1, ttl_ms)
    assert granted.verb is Verb.COMMIT
    assert granted.lease_id is not None
    return granted.lease_id


async def test_a_reservation_whose_answer_was_lost_is_found_again_whoever_asks(channel: Channel) -> None:
    """On whichever slot, under the same lease id or none: one slot, one lease; another call has to wait for it."""
    calls = InDoubt(channel)
    lease_id = await _held(channel)
    again = InDoubtResult(Verb.DUPLICATE, None, lease_id=lease_id, slot="gpu")
    assert await calls.reserve(ONE, "cpu", "k1", 1, 1) == again
    assert await calls.reserve(ONE, "cpu", "k1", 1, 1, lease_id) == again
    assert (await calls.reserve(TWO, "gpu", "k1", 1, 1)).reason is InDoubtReason.SLOT_BUSY
    assert (await calls.reserve(TWO, "cpu", "k1", 1, 1)).lease_id not in (None, lease_id)


async def test_a_resend_is_answered_as_at_first_when_its_call_is_over_by_now(channel: Channel) -> None:
    """It names what the command was granted; whether that is worth anything, `prepare` says."""
    calls = InDoubt(channel)
    lease_id = await _held(channel)
    assert (await calls.prepare(ONE, lease_id, "k1", 1)).applied
    assert (await calls.bind(ONE, lease_id, "k1", 1, "done")).applied
    resent = await calls.reserve(ONE, "gpu", "k1", 1, 60_000, lease_id)
    assert resent == InDoubtResult(Verb.DUPLICATE, None, lease_id=lease_id, slot="gpu")
    assert (await calls.prepare(ONE, lease_id, "k1", 1)).reason is InDoubtReason.ALREADY_DECIDED
    assert (await calls.reserve(ONE, "gpu", "k1", 1, 60_000)).reason is InDoubtReason.ALREADY_DECIDED
    assert (await calls.recover(ONE, "k1", 1)).result == "done"


async def test_a_slot_comes_free_with_the_result_or_by_the_servers_own_clock(channel: Channel) -> None:
    """A bound call gives it back at once, a silent one when its time is over; what comes of that one is refused."""
    calls = InDoubt(channel)
    lease_id = await _held(channel)
    await calls.prepare(ONE, lease_id, "k1", 1)
    await calls.bind(ONE, lease_id, "k1", 1, "done")
    late = await _held(channel, "k2", ttl_ms=1)

    async def free() -> None:
        while not (await calls.reserve(TWO, "gpu", "k1", 1, 60_000)).applied:
            await asyncio.sleep(0.001)

    await soon(free())
    assert (await calls.bind(ONE, late, "k2", 1, "done")).reason is InDoubtReason.LEASE_EXPIRED
    assert (await calls.recover(ONE, "k2", 1)).reason is InDoubtReason.NEVER_STARTED


async def test_a_prepared_call_whose_time_ran_out_is_recovered_and_never_repeated(channel: Channel) -> None:
    """At the last millisecond its result would count; from the next on its effect is undone, whoever asks."""
    calls, clock = InDoubt(channel), ("HSET", channel.keys.batch_row, "clock")
    await channel.link.command(*clock, 1_000)
    lease_id = await _held(channel, ttl_ms=100)
    await calls.prepare(ONE, lease_id, "k1", 1)
    await channel.link.command(*clock, 1_099)
    assert (await calls.recover(ONE, "k1", 1)).reason is InDoubtReason.LEASE_LIVE
    await channel.link.command(*clock, 1_100)
    assert (await calls.reserve(ONE, "cpu", "k1", 1, 60_000)).reason is InDoubtReason.RECOVER_FIRST
    lost = InDoubtResult(Verb.COMPENSATE, None, undo_id="k1~undo")
    assert await calls.recover(ONE, "k1", 1) == lost == await calls.recover(ONE, "k1", 1)
    await channel.link.command(*clock, 1_000)  # a server's clock that is set back makes no call live again
    assert await calls.recover(ONE, "k1", 1) == lost
    assert (await calls.bind(ONE, lease_id, "k1", 1, "done")).reason is InDoubtReason.ALREADY_DECIDED


async def test_a_call_is_not_taken_for_another_of_a_longer_name(channel: Channel) -> None:
    """A lease of `k`, quoted with a colon in it, is none of `k:b`; nor is epoch 1 of key `2:k` epoch 12."""
    calls = InDoubt(channel)
    await calls.reserve(ONE, "s1", "k", 1, 60_000, LeaseId("b:c"))
    assert (await calls.reserve(ONE, "s2", "k:b", 1, 60_000, LeaseId("c"))).verb is Verb.COMMIT
    assert (await calls.recover(ONE, "2:k", 1)).reason is InDoubtReason.NEVER_STARTED


async def test_each_acquire_draws_a_lease_of_its_own(channel: Channel) -> None:
    """Two equal calls are two commands: the second step of a desk of one finds it full, and gets no lease."""
    desk = Admission(channel)
    first = await desk.acquire(ONE, "step")
    assert first.lease is not None
    assert first.gen is not None
    assert (await desk.apply(ONE, "step", first.lease, first.gen, "body")).applied
    assert (await desk.release(ONE, "step", first.lease)).applied
    second = await desk.acquire(ONE, "next")
    assert second.lease not in (None, first.lease)
    assert second.gen == 2


async def test_a_committed_step_is_told_by_its_lease_when_its_place_was_given_up_as_well(channel: Channel) -> None:
    """Committed, expired, reclaimed: the resend of what committed it is a duplicate all along, and of nothing else."""
    desk = Admission(channel)
    first = await desk.acquire(ONE, "step")
    assert first.lease is not None
    assert first.gen is not None
    assert (await desk.apply(ONE, "step", first.lease, first.gen, "body")).applied
    for give_up in (desk.expire(ONE, "step", first.lease), desk.reclaim(ONE, "step", first.lease, cancelled=True)):
        assert (await give_up).applied
        assert (await desk.apply(ONE, "step", first.lease, first.gen, "body")).verb is Verb.DUPLICATE
        assert (await desk.apply(ONE, "step", first.lease, first.gen, "other")).reason is AdmissionReason.STALE_GEN
        assert (await desk.acquire(ONE, "step")).reason is AdmissionReason.STEP_COMMITTED


async def test_desks_of_one_batch_are_bounded_apart(channel: Channel) -> None:
    """A full desk of runs does not hold up an endpoint's, and a desk without a bound takes nobody."""
    await channel.link.command("HSET", channel.keys.desk("endpoint"), "bound", 1, "reclaim_ms", 1)
    await Admission(channel).acquire(ONE, "run")
    assert (await Admission(channel, "endpoint").acquire(ONE, "call")).applied
    assert (await Admission(channel, "nowhere").acquire(ONE, "late")).reason is AdmissionReason.BOUND_FULL


async def test_a_verdict_that_slept_over_a_rewrite_is_refused_and_one_taken_off_is_kept(channel: Channel) -> None:
    """The planner rewrites the step between two verdicts: the first goes into the history with its tree, the second
    comes under a generation that is gone. A resend of the rewrite takes nothing from the tree after it.
    """
    trees = Workspace(channel)
    await channel.link.command("HSET", channel.keys.batch_row, "schemas", '["v1"]')
    tree, rewritten = Digest("a" * 64), Digest("b" * 64)
    assert (await trees.record(ONE, "step", 1, tree)).applied
    assert (await trees.attach(ONE, "step", 1, tree, "pass", "v9")).reason is WorkspaceReason.SCHEMA
    assert (await trees.attach(ONE, "step", 1, tree, "pass", "v1")).applied
    assert await trees.supersede(ONE, "step", 1, rewritten) == WorkspaceResult(Verb.COMMIT, None, gen=2)
    assert (await trees.attach(ONE, "step", 1, tree, "fail", "v1")).reason is WorkspaceReason.STALE_GEN
    assert (await trees.attach(ONE, "step", 2, tree, "pass", "v1")).reason is WorkspaceReason.TREE_HASH
    assert (await trees.attach(ONE, "step", 2, rewritten, "fail", "v1")).verb is Verb.COMMIT
    assert (await trees.supersede(ONE, "step", 1, rewritten)).reason is WorkspaceReason.STALE_GEN
    assert (await trees.attach(ONE, "step", 2, rewritten, "fail", "v1")).verb is Verb.DUPLICATE
    assert (await trees.attach(TWO, "step", 2, rewritten, "fail", "v1")).reason is WorkspaceReason.STALE_GEN

    parts = [part async for entry in read_history(channel.link, channel.keys) for part in entry.parts]
    cleared = [part.args["cleared"] for part in parts if "cleared" in part.args]
    assert cleared == [{"step": "step", "gen": 1, "tree_hash": tree, "verdict": "pass"}]
    schemas = [part.args.get("schema") for part in parts if part.op == "attach"]
    assert schemas == ["v9", *["v1"] * 6], "an envelope's own `schema` is its version: the verdict's stands in the part"


async def test_a_shadow_run_writes_its_own_key_and_no_other(channel: Channel) -> None:
    """From the minting of its key to its inverse; a live key in the same hands is refused each time, and recorded."""
    await channel.link.command("HSET", channel.keys.batch_row, "capacity", 1)
    planes = PlaneFence(channel)
    key = (await planes.rewrite(ONE, "pay")).key
    assert key == f"shadow:{ONE}:pay"
    admitted = await planes.admit(key, Plane.SHADOW, LEASE)
    assert admitted == PlaneResult(Verb.COMMIT, None, admission=LEASE)
    assert await planes.admit(key, Plane.SHADOW, LEASE) == PlaneResult(Verb.DUPLICATE, None, admission=LEASE)
    other = await planes.admit(key, Plane.SHADOW)
    assert (other.reason, other.admission) == (PlaneReason.DUPLICATE_KEY, LEASE)

    live = f"live:{ONE}:pay"
    assert (await planes.write(LEASE, live, Plane.LIVE, "5")).reason is PlaneReason.PLANE_KEY
    assert (await planes.write(LEASE, key, Plane.LIVE, "5")).reason is PlaneReason.PLANE_HEADER
    assert (await planes.write(LEASE, key, Plane.SHADOW, "5")).applied
    assert (await planes.release(LEASE)).applied
    assert (await planes.undo(LEASE, live, Plane.LIVE)).reason is PlaneReason.PLANE_KEY
    assert (await planes.undo(LEASE, key, Plane.SHADOW)).applied
    queued = [await channel.link.command("XLEN", channel.keys.undo(plane)) for plane in (Plane.LIVE, Plane.SHADOW)]
    assert queued == [0, 1]
    assert (await planes.admit(key, Plane.SHADOW)).reason is PlaneReason.DUPLICATE_KEY


async def test_a_plane_that_was_left_out_is_not_taken_from_the_batch(channel: Channel) -> None:
    """The envelope names the batch's own plane for every other command; here it would be a default."""
    planes = PlaneFence(channel)
    for op in ("admit", "write", "undo"):
        args = {"admission": LEASE, "key": f"live:{ONE}:pay", "body": "5"}
        refused = await planes.send(op, args if op == "write" else {name: args[name] for name in ("admission", "key")})
        assert refused.reason == "schema", op
    assert (await planes.admit(f"live:{ONE}:pay", Plane.LIVE)).applied


async def test_a_batch_without_a_shadow_capacity_admits_nothing_there(channel: Channel) -> None:
    """What was not declared is nothing, not everything."""
    refused = await PlaneFence(channel).admit(f"shadow:{ONE}:pay", Plane.SHADOW)
    assert (refused.verb, refused.reason) == (Verb.REJECT, PlaneReason.CAPACITY)


async def test_a_receipt_is_worth_what_the_live_disk_holds(channel: Channel) -> None:
    """A replica vanishes with two writes and comes back with the first: that one counts, the other is written again.

    Whoever lost an answer asks again with the id that he drew; an id of another command is told from a resend.
    """
    await channel.link.command("HSET", channel.keys.batch_row, "heartbeat_ms", 3_600_000)
    boxes, command, receipt, digest = Sandbox(channel), "c" * 32, "d" * 32, Digest("e" * 64)
    for step in ("one", "two"):
        assert (await boxes.plan(ONE, step, escapes=False)).verb is Verb.COMMIT
    first = await boxes.acquire(ONE, "box", 0, command)
    assert first == SandboxResult(Verb.COMMIT, None, epoch=1, kept=())
    assert await boxes.acquire(ONE, "box", 0, command) == SandboxResult(Verb.DUPLICATE, None, epoch=1, kept=())
    assert (await boxes.acquire(ONE, "other box", 0, command)).reason is SandboxReason.COMMAND_REUSED
    written = await boxes.write(ONE, "box", "one", 1, "/one", digest, receipt)
    assert written == SandboxResult(Verb.COMMIT, None, receipt=receipt, log_index=1)
    assert (await boxes.write(ONE, "box", "two", 1, "/two", digest, receipt)).reason is SandboxReason.RECEIPT_REUSED
    lost = await boxes.write(ONE, "box", "two", 1, "/two", digest)
    assert lost.receipt is not None
    assert lost.log_index == 2
    assert (await boxes.heartbeat(ONE, "box", 1)).applied
    assert (await boxes.preempt(ONE, "box", 1)).applied

    again = await boxes.acquire(ONE, "box", 1)
    assert again.epoch is not None
    assert (again.epoch > 2, again.kept) == (True, ("one",))
    late = await boxes.write(ONE, "box", "one", 1, "/one", digest, receipt)
    assert late == SandboxResult(Verb.DUPLICATE, None, receipt=receipt, log_index=1)
    assert (await boxes.join(ONE, "box", "one", receipt, again.epoch)).state is StepState.COMMITTED
    refused = await boxes.join(ONE, "box", "two", lost.receipt, again.epoch)
    assert (refused.reason, refused.state) == (SandboxReason.STALE_EPOCH, StepState.REJECTED)
    reused = await boxes.write(ONE, "box", "two", again.epoch, "/two", digest, lost.receipt)
    assert reused.reason is SandboxReason.RECEIPT_REUSED
    retried = await boxes.write(ONE, "box", "two", again.epoch, "/two", digest)
    assert retried.receipt not in (None, lost.receipt)
    assert retried.log_index == 3


async def test_what_left_a_workspace_that_was_lost_is_undone_under_one_name(channel: Channel) -> None:
    """Whoever asks, however often, and under whatever epoch: the same undo, which its own key makes happen once."""
    await channel.link.command("HSET", channel.keys.batch_row, "heartbeat_ms", 3_600_000)
    boxes, receipt = Sandbox(channel), "d" * 32
    await boxes.plan(ONE, "mail", escapes=True)
    await boxes.acquire(ONE, "box", 0)
    assert (await boxes.write(ONE, "box", "mail", 1, "/mail", Digest("e" * 64), receipt)).applied
    epoch = (await boxes.acquire(ONE, "box", 0)).epoch
    assert epoch == 2
    undone = SandboxResult(Verb.COMPENSATE, None, state=StepState.COMPENSATED, undo_id="mail~undo")
    assert [await boxes.join(ONE, "box", "mail", receipt, given) for given in (1, 2, 2)] == [undone] * 3
    assert (await boxes.write(ONE, "box", "mail", 2, "/mail", Digest("e" * 64))).undo_id == "mail~undo"


async def test_the_answer_to_a_dead_holders_prompt_binds_under_no_lease(channel: Channel) -> None:
    """A worker is preempted while its prompt is under way: its answer is neither its own any more nor its heir's."""
    await channel.link.command("HSET", channel.keys.batch_row, "compute_retries", 1, "model_retries", 1)
    calls, heir, prompt, body = Completion(channel), LeaseId("b" * 32), Digest("e" * 64), Digest("f" * 64)
    assert await calls.lease(ONE, LEASE) == CompletionResult(Verb.COMMIT, None, gen=Gen(1))
    assert (await calls.open(ONE, "1.1", LEASE, Gen(1), "q1", prompt)).applied
    assert (await calls.fence(ONE, Gen(1))).applied
    assert (await calls.lease(ONE, heir)).gen == 2

    late = await calls.bind(ONE, "1.1", LEASE, Gen(1), "q1", prompt, payload_ok=True, digest=body)
    assert (late.verb, late.reason) == (Verb.REJECT, CompletionReason.STALE_LEASE)
    adopted = await calls.bind(ONE, "1.1", heir, Gen(2), "q1", prompt, payload_ok=True, digest=body)
    assert adopted.reason is CompletionReason.UNKNOWN_REQUEST
    assert (await calls.open(TWO, "1.1", heir, Gen(2), "q2", prompt)).reason is CompletionReason.STALE_LEASE

    assert (await calls.open(ONE, "1.1", heir, Gen(2), "q2", prompt)).applied
    corrupt = await calls.bind(ONE, "1.1", heir, Gen(2), "q2", prompt, payload_ok=False, digest=body)
    assert corrupt == CompletionResult(Verb.REPLAY, CompletionReason.PAYLOAD_CORRUPT, model_left=0)
    assert (await calls.open(ONE, "1.1", heir, Gen(2), "q3", prompt)).applied
    bound = await calls.bind(ONE, "1.1", heir, Gen(2), "q3", prompt, payload_ok=True, digest=body)
    assert bound == CompletionResult(Verb.COMMIT, None, model_left=0)
    assert (await calls.lease(ONE, LeaseId("c" * 32))).reason is CompletionReason.RETRIES_EXHAUSTED
    assert (await calls.close()).applied
    again = await calls.bind(ONE, "1.1", heir, Gen(2), "q3", prompt, payload_ok=True, digest=body)
    assert again.reason is CompletionReason.AFTER_CLOSE


async def test_a_broken_streams_tail_is_spent_and_the_gateway_has_the_last_word(channel: Channel) -> None:
    """What was produced and never stored is an orphan, also what comes after the cut; the retry pays for itself."""
    await channel.link.command("HSET", channel.keys.batch_row, "budget", 100)
    ledger = Ledger(channel)
    assert (await ledger.admit(ONE, "1.1", 1, 60)).applied
    assert (await ledger.admit(TWO, "1.1", 1, 50)).reason is LedgerReason.OVER_BUDGET
    stored = await ledger.chunk(ONE, "1.1", 1, 1, 20, durable=True)
    assert stored == LedgerResult(Verb.COMMIT, None, billed=20, durable=20, watermark=1)
    assert (await ledger.done(ONE, "1.1", 1, 2)).state is AttemptState.OPEN
    assert (await ledger.cut(ONE, "1.1", 1)).applied
    late = await ledger.chunk(ONE, "1.1", 1, 2, 10, durable=True)
    assert (late.reason, late.billed, late.durable) == (LedgerReason.ATTEMPT_CLOSED, 30, 20)
    assert (await ledger.reconcile(ONE, "1.1", 1, 19)).reason is LedgerReason.BELOW_DURABLE
    assert (await ledger.reconcile(ONE, "1.1", 1, 35)).applied

    assert (await ledger.admit(ONE, "1.1", 2, 66)).reason is LedgerReason.OVER_BUDGET
    assert (await ledger.admit(ONE, "1.1", 3, 65)).applied
    assert (await ledger.chunk(ONE, "1.1", 3, 1, 30, durable=True)).applied
    assert await ledger.done(ONE, "1.1", 3, 1) == LedgerResult(Verb.COMMIT, None, state=AttemptState.COMMITTED)
    assert (await ledger.admit(ONE, "1.1", 4, 1)).reason is LedgerReason.ALREADY_COMMITTED
    assert (await ledger.abandon(ONE, "1.1", 4)).verb is Verb.DUPLICATE
    row = await channel.link.command("HMGET", channel.keys.batch_row, "spent", "durable", "reserved")
    assert row == [b"65", b"50", b"0"]


@pytest.mark.parametrize("seed", range(6))
async def test_chunks_in_whatever_order_end_at_the_same_figures(server: Target, seed: int) -> None:
    """Each comes twice, paid and then durable, in any order: gaps open, and close in leaps. A stream that comes in
    order leaves no field behind it, one that does not leaves no more than it had gaps for."""
    rng, last = random.Random(seed), 24
    name: dict[str, object] = {"step": "s", "attempt": 1}
    arrivals = [(seq, durable) for seq in range(1, last + 1) for durable in (False, True)]
    if seed:
        rng.shuffle(arrivals)
    async with both(server, "ledger", {"budget": last}) as pair:
        await pair.send(Call("admit", {**name, "estimate": last}))
        for seq, durable in arrivals:
            await pair.send(Call("chunk", {**name, "seq": seq, "tokens": 1, "durable": durable}))
        await pair.send(Call("done", {**name, "last_seq": last}))
        await pair.compare()
        assert "done commit" in pair.outcomes
        row = await pair.link.command("HKEYS", pair.server.keys.run(RunId("run")))
        assert {b"l.a:s#1", b"l.done:s"} <= set(row)
        assert len(row) <= (2 if seed == 0 else 2 + 5 * last)


def test_an_estimate_is_a_high_quantile_of_what_was_billed() -> None:
    """By nearest rank, so that it is a number that was really seen; one that nobody knows is the caller's guess."""
    assert estimate_from([], otherwise=500) == 500
    assert estimate_from([7], otherwise=500) == 7
    assert estimate_from(range(1, 101), otherwise=0) == 95
    assert estimate_from([30, 10, 20], otherwise=0, quantile=0.5) == 20
    assert estimate_from([30, 10, 20], otherwise=0, quantile=1) == 30
    for quantile in (0, -0.1, 1.01):
        with pytest.raises(ValueError, match="a quantile is above 0 and at most 1"):
            estimate_from([1], otherwise=0, quantile=quantile)


async def test_a_case_waits_for_all_its_attempts(channel: Channel) -> None:
    """Two attempts, the second one failed; a coordinator that restarts finds the window under the same name."""
    await channel.link.command("HSET", channel.keys.batch_row, "budget", 50, "budget_epoch", 3)
    cases = Join(channel)
    window = window_of("c", ["é", "ls"], 3)
    opened = JoinResult(Verb.COMMIT, None, window=window, remaining=10)
    assert await cases.admit(ONE, "c", ["ls", "é"], 40) == opened
    assert await Join(channel).admit(ONE, "c", ("é", "ls", "é"), 40) == dataclasses.replace(opened, verb=Verb.DUPLICATE)
    assert (await cases.admit(ONE, "c", ["ls"], 40)).reason is JoinReason.EXPECTED_MISMATCH
    assert (await cases.result(ONE, "c", "ls", window, 4, ok=True)).state is CaseState.OPEN
    twice = await cases.result(ONE, "c", "ls", window, 4, ok=True)
    assert (twice.reason, twice.state) == (JoinReason.DUPLICATE_ATTEMPT, CaseState.OPEN)
    assert (await cases.commit(ONE, "c", "pass")).reason is JoinReason.NOT_JOINED
    assert (await cases.result(ONE, "c", "é", window, 5, ok=False)).state is CaseState.JOINED
    assert (await cases.commit(ONE, "c", "fail")).remaining == 41
    assert (await cases.expire(ONE, "c")).reason is JoinReason.NOT_OPEN


async def test_a_window_of_a_thousand_attempts_opens_and_a_larger_one_does_not(channel: Channel) -> None:
    """All its attempts are written at once, and a script is bounded in work."""
    await channel.link.command("HSET", channel.keys.batch_row, "budget", 9, "budget_epoch", 0)
    many = [f"attempt {n}" for n in range(1001)]
    assert (await Join(channel).admit(ONE, "c", many, 1)).reason is JoinReason.SCHEMA
    opened = await Join(channel).admit(ONE, "c", many[1:], 1)
    assert opened.window is not None
    assert (await Join(channel).result(ONE, "c", many[1000], opened.window, 1, ok=True)).applied
    model = build("join", {"budget": 9, "budget_epoch": 0})
    args = {"case": "c", "expected": many, "window_cost": 1}
    assert model.decide("admit", args).reason == "schema"
    assert model.decide("admit", args | {"expected": many[1:]}).fields["window"] == opened.window


async def test_the_same_case_of_two_runs_is_two_cases_of_one_budget(channel: Channel) -> None:
    """Each run numbers its fan-outs from the start."""
    await channel.link.command("HSET", channel.keys.batch_row, "budget", 10, "budget_epoch", 0)
    cases = Join(channel)
    assert (await cases.admit(ONE, "1", ["ls"], 6)).remaining == 4
    assert (await cases.expire(TWO, "1")).reason is JoinReason.UNKNOWN_CASE
    assert (await cases.admit(TWO, "1", ["ls"], 6)).reason is JoinReason.OVER_BUDGET
    assert (await cases.admit(TWO, "1", ["ls"], 1)).reason is JoinReason.CASE_CLOSED
    assert (await cases.admit(TWO, "2", ["cat"], 4)).remaining == 0


async def test_a_batch_that_declared_no_budget_is_one_clear_line(channel: Channel) -> None:
    """Without its epoch no window has a name."""
    with pytest.raises(InputError, match=r"^batch 'b' has no budget on this server$"):
        await Join(channel).admit(ONE, "c", ["ls"], 1)


async def test_a_set_that_is_none_is_refused_before_anything_is_looked_at(channel: Channel) -> None:
    """It travels beside the envelope, in bytes that the envelope's check does not see; the case has ended already."""
    await channel.link.command("HSET", channel.keys.batch_row, "budget", 10, "budget_epoch", 0)
    cases, envelope = Join(channel), {"run": ONE, "case": "c", "window": "w", "window_cost": 1}
    await cases.admit(ONE, "c", ["ls"], 1)
    await cases.expire(ONE, "c")
    texts = (b"", b"[]", b"{}", b'{"a":"b"}', b'"ls"', b"[1]", b'["ls",""]', b'[["ls"]]', b"[null]", b'["ls"', b"\xff")
    for text in texts:
        refused = await channel.decide("join.admit", envelope, argv={"expected": text})
        assert (refused.verb, refused.reason) == (Verb.REJECT, "schema"), text
    closed = await channel.decide("join.admit", envelope, argv={"expected": b'["ls"]'})
    assert closed.reason == "case_closed"


async def test_an_attempt_that_is_expected_twice_is_waited_for_once(channel: Channel) -> None:
    """A client that does not sort its set must not make a case that nobody can complete."""
    await channel.link.command("HSET", channel.keys.batch_row, "budget", 10, "budget_epoch", 0)
    envelope = {"run": ONE, "case": "c", "window": "w", "window_cost": 1}
    await channel.decide("join.admit", envelope, argv={"expected": b'["ls","ls"]'})
    assert (await Join(channel).result(ONE, "c", "ls", Digest("w"), 1, ok=True)).state is CaseState.JOINED


async def test_the_export_shows_a_set_and_an_object_as_they_were_presented(channel: Channel) -> None:
    """A replay of the history gives them to the model; what is no set must still be none there."""
    await channel.link.command("HSET", channel.keys.batch_row, "budget", 10, "budget_epoch", 0)
    presented: tuple[object, ...] = (["ls", "é"], [], "ls", {"ls": 1}, [["ls"]], 7.5)
    for expected in presented:
        await Join(channel).send("admit", {"run": ONE, "case": "c", "expected": expected, "window_cost": 1})
    shown = [line async for line in lines(channel.link, channel.keys) if line.fence == "join"]
    assert [line.args["expected"] for line in shown] == list(presented)
    model = build("join", {"budget": 10, "budget_epoch": 0})
    assert [model.decide(line.op, line.args).as_dict() for line in shown] == [
        {"verb": line.verb, "reason": line.reason, **line.answer} for line in shown
    ]
