"""The typed operations: the contract's names as signatures, enums and fields; and what only they do."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import AsyncIterator, Mapping
from enum import StrEnum

import pytest

from bus.chain import EMPTY_HEAD, next_head
from bus.connection import Endpoint
from bus.contract import CONTRACT, OpContract
from bus.envelopes import MAX_PAYLOAD
from bus.errors import InputError
from bus.fences.admission import Admission, AdmissionReason, AdmissionResult
from bus.fences.fence import Channel
from bus.fences.histogram import Histogram, HistogramReason, HistogramResult
from bus.fences.judge import Judge, JudgeReason, JudgeResult
from bus.fences.transcript import Transcript, TranscriptReason, TranscriptResult
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
from workers.runtime import SystemRuntime

REASONS: Mapping[str, type[StrEnum]] = {
    "transcript": TranscriptReason,
    "histogram": HistogramReason,
    "judge": JudgeReason,
    "admission": AdmissionReason,
}
RESULTS: Mapping[str, type] = {
    "transcript": TranscriptResult,
    "histogram": HistogramResult,
    "judge": JudgeResult,
    "admission": AdmissionResult,
}
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
    """By name. `admission` also names the run and the step, in whose row the lease is kept."""
    method = getattr(FENCES[fence], op.name)
    assert inspect.iscoroutinefunction(method)
    taken = set(inspect.signature(method).parameters) - {"self"}
    assert taken - ({"run", "step"} if fence == "admission" else set()) == {arg.name for arg in op.args} - (
        {"step"} if fence == "admission" else set()
    )


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


async def test_desks_of_one_batch_are_bounded_apart(channel: Channel) -> None:
    """A full desk of runs does not hold up an endpoint's, and a desk without a bound takes nobody."""
    await channel.link.command("HSET", channel.keys.desk("endpoint"), "bound", 1, "reclaim_ms", 1)
    await Admission(channel).acquire(ONE, "run")
    assert (await Admission(channel, "endpoint").acquire(ONE, "call")).applied
    assert (await Admission(channel, "nowhere").acquire(ONE, "late")).reason is AdmissionReason.BOUND_FULL
