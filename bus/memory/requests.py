"""What a model call is to the bus in memory: how it is named, which place it has, whether it was answered before."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from bus.memory.batch import Life, MemoryBatch
from bus.memory.command import Command
from bus.models import Answer, Verb
from bus.models.completion import Shard
from bus.models.ledger import AttemptId, State
from bus.port import Ref
from bus.port_calls import Chunk, ModelCall, ModelReply

__all__ = [
    "announced",
    "are_chunks",
    "bill",
    "gen_of_place",
    "give_answer",
    "give_up_answer",
    "has_place",
    "in_flight",
    "intent_of",
    "is_bound_by",
    "is_call",
    "is_committed_by",
    "is_mixed_up",
    "is_reply",
    "is_step_of",
    "named",
    "token_of",
    "was_settled_at",
    "was_used",
]

_MOST_CHUNKS = 200  # as the scripts


def intent_of(call: ModelCall) -> str:
    """What is announced in the transcript: this step's question, whichever request will carry it."""
    return hashlib.sha256(f"{call.step}\n{call.prompt_hash}".encode("utf-8", "surrogatepass")).hexdigest()


def named(call: ModelCall) -> Mapping[str, object]:
    """A request as every envelope names it."""
    return {"step": call.step, "attempt": call.attempt, "desk": call.desk, "desk_lease": call.desk_lease}


def announced(call: ModelCall) -> Mapping[str, object]:
    """What is compared when its answer is to stand in the transcript."""
    return {
        **named(call),
        "request_id": call.request_id,
        "prompt_hash": call.prompt_hash,
        "parent": call.parent,
        "seq": call.seq,
        "intent": intent_of(call),
    }


def token_of(ref: Ref, call: ModelCall) -> dict[str, object]:
    """A request as fence 4 knows it, under its lease."""
    return {
        "step": call.step,
        "lease_id": ref.lease_id,
        "gen": ref.gen,
        "request_id": call.request_id,
        "prompt_hash": call.prompt_hash,
    }


def is_step_of(call: ModelCall, prefix: str) -> bool:
    """A step of this run."""
    return call.step.startswith(prefix) and len(call.step) > len(prefix) and is_line(call.step)


def is_call(call: ModelCall, prefix: str, desk: str) -> bool:
    """A step of this run and conversation, at the desk that is its own, under names that are one word each."""
    words = (call.desk_lease, call.request_id)
    return call.desk == desk and is_step_of(call, prefix) and all(is_line(word) and " " not in word for word in words)


def is_line(text: str) -> bool:
    return text != "" and not any(char < " " or char == "\x7f" for char in text)


def is_reply(reply: ModelReply, *, kept: bool = True) -> bool:
    """An answer that is to be bound has tokens, and says something where it is kept."""
    whole = reply.last_seq > 0 and (reply.payload != "" or not kept)
    return are_chunks(reply.chunks) and (whole or not reply.ok)


def is_mixed_up(at: MemoryBatch, life: Life, call: ModelCall, *, request: bool = True) -> bool:
    """A place stands for one attempt of one run at one step. Who names it with another confuses two calls."""
    place = at.desks[call.desk].leases.get(call.desk_lease)
    if place is None:
        return False
    if place.gone:  # one of another run was never here
        return place.step != call.step and place.step.startswith(f"{call.step.rpartition('~')[0]}~")
    mine = life.calls.get(call.desk_lease)
    if mine is None or (mine.step, mine.attempt) != (call.step, call.attempt):
        return True
    return request and mine.request != call.request_id


def has_place(at: MemoryBatch, life: Life, call: ModelCall) -> bool:
    """Whether the call has its place still."""
    known = call.desk_lease in life.calls and not is_mixed_up(at, life, call)
    return known and at.desks[call.desk].live.get(call.step) == call.desk_lease


def was_used(at: MemoryBatch, call: ModelCall) -> bool:
    """Whether the call's place was given back."""
    place = at.desks[call.desk].leases.get(call.desk_lease)
    return place is not None and place.gone and place.step == call.step


def gen_of_place(at: MemoryBatch, call: ModelCall) -> int:
    """What its place's lease was numbered."""
    return at.desks[call.desk].leases[call.desk_lease].gen


def is_bound_by(at: MemoryBatch, ref: Ref, call: ModelCall) -> bool:
    """The step's answer is bound, and this request was the one that was answered."""
    bound = at.completion.bound.get(Shard(ref.run, call.step))
    if bound is None or (bound.request_id, bound.gen) != (call.request_id, ref.gen):
        return False
    return at.completion.requests[call.request_id].prompt_hash == call.prompt_hash


def is_committed_by(at: MemoryBatch, call: ModelCall) -> bool:
    """Whether its place is the one that committed the step."""
    body = at.desks[call.desk].committed.get(call.step)
    return body is not None and body.lease == call.desk_lease


def was_settled_at(at: MemoryBatch, call: ModelCall, figure: int | None) -> bool:
    """Whether the call was given up before and settled so; with no figure, whatever it was settled at."""
    attempt = at.ledger.attempts.get(AttemptId(call.step, call.attempt))
    if attempt is None or attempt.state is State.COMMITTED or not attempt.settled:
        return False
    return attempt.billed == max(attempt.billed if figure is None else figure, attempt.durable)


def in_flight(at: MemoryBatch, life: Life, desk: str, step: str) -> dict[str, object]:
    """The request that has the step's live place, for whoever wants to put something beside it."""
    lease = at.desks[desk].live.get(step, "")
    mine = life.calls.get(lease)
    return {} if mine is None else {"request": mine.request, "attempt": mine.attempt, "desk_lease": lease}


def are_chunks(chunks: Sequence[Chunk]) -> bool:
    """Not too many, and each with its number."""
    return len(chunks) <= _MOST_CHUNKS and all(chunk.seq >= 1 and chunk.tokens >= 0 for chunk in chunks)


def bill(command: Command, call: ModelCall, chunks: Sequence[Chunk], guessed: int = 0) -> Answer:
    """What was delivered was spent, whoever presents it and whatever becomes of the command that carries it.

    The first refusal if there is one, else the last chunk's answer; a duplicate only when there was nothing new.
    `guessed` of their tokens nobody measured: counted as such as far as they are billed now.
    """
    at, before = command.batch, command.batch.ledger.spent
    said: Answer | None = None
    for chunk in chunks:
        counted = {"seq": chunk.seq, "tokens": chunk.tokens, "durable": chunk.durable}
        command.step_kept(command.batch.ledger, "chunk", step=call.step, attempt=call.attempt, **counted)
        now = command.last
        if said is None or said.verb is Verb.DUPLICATE or (said.verb is Verb.COMMIT and now.verb is Verb.REJECT):
            said = now
        elif said.verb is Verb.COMMIT:
            said = Answer(said.verb, said.reason, now.fields)
    at.estimated += min(guessed, at.ledger.spent - before)
    return said or Answer(Verb.DUPLICATE)


def give_answer(command: Command, life: Life, call: ModelCall, desk_gen: int, reply: ModelReply) -> bool:
    """The attempt is committed, and its place given back."""
    at, desk = command.batch, command.batch.desks[call.desk]
    if not command.step(at.ledger, "done", step=call.step, attempt=call.attempt, last_seq=reply.last_seq):
        return False
    place = desk.leases.get(call.desk_lease)
    if place is not None and place.step != call.step:  # another run's, and given back
        body = {"lease": call.desk_lease, "gen": desk_gen, "digest": reply.digest}
        command.note("admission.apply", Answer(Verb.REJECT, "stale_gen"), body)
        return False
    granted = command.step(desk, "apply", lease=call.desk_lease, gen=desk_gen, digest=reply.digest) and command.step(
        desk, "release", lease=call.desk_lease
    )
    if granted:
        life.calls.pop(call.desk_lease, None)
    return granted


def give_up_answer(command: Command, life: Life, call: ModelCall) -> None:
    """An answer that is none: the attempt is cut, its place free for the next one."""
    at = command.batch
    if life.calls.pop(call.desk_lease, None) is None:
        return
    attempt = at.ledger.attempts.get(AttemptId(call.step, call.attempt))
    if attempt is not None and attempt.state is State.OPEN:
        command.step(at.ledger, "cut", step=call.step, attempt=call.attempt)
    command.step(at.desks[call.desk], "release", lease=call.desk_lease)
