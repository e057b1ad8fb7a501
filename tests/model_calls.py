"""Model calls in a test: drawn like a worker draws them, and checked against the reference models.

call = asked(held.ref)                                # a new request, attempt and place each time
decision = await batch.bus.open_call(held.ref, call)
await check_calls(batch)                              # desks, rows, ledger and history tell the same story
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from bus.chain import EMPTY_HEAD, next_head
from bus.export import lines
from bus.export_format import Line
from bus.models.admission import Admission
from bus.models.completion import Completion
from bus.models.ledger import Ledger
from bus.models.model import Model
from bus.models.transcript import Transcript
from bus.port import Chunk, ModelCall, ModelReply, Ref
from bus.port_calls import JUDGE_DESK, MODEL_DESK
from bus.types import Digest, Verb
from tests.batches import W2, Batch, Held

__all__ = [
    "HELLO",
    "LIMITS",
    "LOST",
    "answered",
    "asked",
    "at",
    "check_calls",
    "desk_of",
    "figures",
    "judged",
    "opened_call",
    "succeeded",
]

LIMITS: Mapping[str, int] = {
    "compute_retries": 9,
    "model_retries": 1,
    "budget": 1_000,
    "model_slots": 2,
    "judge_slots": 1,
}
"""What a batch of these tests declares, unless a test is about another number."""

HELLO = next_head(EMPTY_HEAD, "hello")
"""The head of a transcript of one event: what `answered` says."""

LOST = '{"kind":"lost"}'
"""An event in the place of an answer that will never come."""

_drawn = itertools.count(1)

_LONG = 10**12  # ms: longer than any bound


def asked(
    ref: Ref, *, n: int = 1, prompt: str = "prompt", parent: str = EMPTY_HEAD, seq: int = 1, estimate: int = 100
) -> ModelCall:
    """A fresh attempt at the n-th question of the run's conversation."""
    number = next(_drawn)
    return ModelCall(
        step=f"{ref.run}~{ref.conversation}.{n}",
        request_id=f"request{number}",
        attempt=number,
        desk_lease=f"place{number}",
        prompt_hash=Digest(hashlib.sha256(prompt.encode()).hexdigest()),
        estimate=estimate,
        parent=Digest(parent),
        seq=seq,
    )


def judged(ref: Ref, *, n: int = 1, estimate: int = 100) -> ModelCall:
    """A fresh attempt at the n-th question of a scorer's epoch."""
    number = next(_drawn)
    return ModelCall(
        step=f"{ref.run}~j{ref.gen}.{n}",
        request_id=f"request{number}",
        attempt=number,
        desk_lease=f"place{number}",
        prompt_hash=Digest("e" * 64),
        estimate=estimate,
        parent=EMPTY_HEAD,
        seq=1,
        desk=JUDGE_DESK,
    )


def answered(
    text: str = "hello", chunks: Sequence[Chunk] = (Chunk(1, 10), Chunk(2, 20)), *, ok: bool = True
) -> ModelReply:
    """A whole answer whose chunks no flush carried."""
    digest = Digest(hashlib.sha256(text.encode()).hexdigest())
    return ModelReply(text, digest, max((chunk.seq for chunk in chunks), default=0), chunks, ok)


async def opened_call(batch: Batch, held: Held, **how: object) -> tuple[ModelCall, int]:
    """A call under way, and the generation of its place."""
    call = asked(held.ref, **how)  # type: ignore[arg-type]
    decision = await batch.bus.open_call(held.ref, call)
    assert decision.verb is Verb.COMMIT, decision
    return call, decision.answer["desk_gen"]


async def succeeded(batch: Batch, held: Held) -> Held:
    """The run in the hands of another worker, who took it for abandoned."""
    return await batch.claimed(W2, await batch.taken(held.entry, W2))


async def at(batch: Batch, ms: int) -> None:
    """Let the server's clock stand at `ms`."""
    await batch.wire.call("HSET", batch.keys.batch_row, "clock", ms)


async def figures(batch: Batch) -> dict[str, int]:
    """The batch's tokens: spent, durable, reserved, estimated; those at zero are left out."""
    counters = await batch.bus.counters(batch.name)
    found = {name: getattr(counters, name) for name in ("spent", "durable", "reserved", "estimated")}
    return {name: number for name, number in found.items() if number}


async def desk_of(batch: Batch, name: str = MODEL_DESK) -> dict[str, str]:
    """Place → `live` or `expired`, of those that are taken at a desk."""
    desk = await batch._hash(batch.keys.desk(name))
    places = {field.removeprefix("l:"): text.split(" ")[0] for field, text in desk.items() if field.startswith("l:")}
    assert int(desk.get("in_flight", "0")) == len(places) <= int(desk["bound"])
    return places


async def check_calls(batch: Batch) -> None:
    """Each place at a desk is one open call, the totals are sums over attempts, and so says the history."""
    noted: dict[str, list[str]] = {MODEL_DESK: [], JUDGE_DESK: []}
    attempts: list[list[str]] = []
    for run in batch.runs:
        row = await batch.row(run)
        for line in row.get("calls", "").splitlines():
            desk, place, *_ = line.split(" ")
            noted[desk].append(place)
        attempts += [text.split(" ") for field, text in row.items() if field.startswith("l.a:")]
    for desk, places in noted.items():
        assert sorted(places) == sorted(await desk_of(batch, desk))
    spent, durable = (sum(int(at[column]) for at in attempts) for column in (2, 3))
    reserved = sum(max(int(at[1]) - int(at[2]), 0) for at in attempts if at[0] == "open")
    told = await figures(batch)
    assert (told.get("spent", 0), told.get("durable", 0), told.get("reserved", 0)) == (spent, durable, reserved)
    assert told.get("estimated", 0) <= spent
    ledger = await _replayed(batch)
    assert (ledger.spent, ledger.durable, ledger.reserved) == (spent, durable, reserved)


async def _replayed(batch: Batch) -> Ledger:
    """Play what was recorded through the models of 4, 7, 10 and 11: each decision must be theirs."""
    limits: dict[str, Any] = {**LIMITS, **batch.spec.limits}
    ledger = Ledger(budget=limits["budget"])
    fences: dict[str, Model] = {
        "completion": Completion(compute_retries=limits["compute_retries"], model_retries=limits["model_retries"]),
        "transcript": Transcript(),
        "ledger": ledger,
    }
    bounds = {"runs": batch.spec.bound, MODEL_DESK: limits["model_slots"], JUDGE_DESK: limits["judge_slots"]}
    desks = {name: Admission(bound=bound, reclaim_ms=1) for name, bound in bounds.items()}
    async for line in lines(batch.bus.link, batch.keys):
        model = fences.get(line.fence)
        if line.fence == "admission":
            model = _desk(desks, line)
        if model is None:
            continue
        if line.op == "reclaim":  # only a reclaim that was due is recorded
            model.elapse(_LONG)
        answer = model.decide(line.op, line.args).as_dict()
        said = {"verb": line.verb, "reason": line.reason, **line.answer}
        assert {name: answer.get(name) for name in said} == said, (line, answer)
    return ledger


def _desk(desks: Mapping[str, Admission], line: Line) -> Admission:
    """The desk that a decision is about: that of the step, or the one that granted the lease."""
    if line.op == "acquire":
        _, turned, step = str(line.args["step"]).rpartition("~")
        return desks[JUDGE_DESK if step.startswith("j") else MODEL_DESK] if turned else desks["runs"]
    granted = [desk for desk in desks.values() if line.args["lease"] in desk.leases]
    named = line.envelope.get("desk")
    return granted[0] if granted else desks[str(named) if named else "runs"]
