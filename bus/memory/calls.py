"""The steps of model calls in memory: announced, paid for by the chunk, and bound or dropped."""

from __future__ import annotations

from collections.abc import Sequence

from bus.chain import next_head
from bus.envelopes import check_payload
from bus.memory.batch import Life, MemoryBatch, OpenCall
from bus.memory.command import Command
from bus.memory.requests import (
    announced,
    are_chunks,
    bill,
    gen_of_place,
    give_answer,
    give_up_answer,
    has_place,
    in_flight,
    intent_of,
    is_bound_by,
    is_call,
    is_committed_by,
    is_mixed_up,
    is_reply,
    is_step_of,
    named,
    token_of,
    was_settled_at,
    was_used,
)
from bus.memory.steps import MemorySteps, on_chain, settle_attempt
from bus.models import Answer, Verb
from bus.models.admission import Committed as Body
from bus.models.completion import Shard
from bus.port import Ref
from bus.port_calls import JUDGE_DESK, MODEL_DESK, Chunk, ModelCall, ModelReply
from bus.types import Decision, Digest

__all__ = ["CallSteps"]


class CallSteps(MemorySteps):
    """See the module's text."""

    async def open_call(self, ref: Ref, call: ModelCall) -> Decision:
        """Announce a request. Answer: desk_gen."""
        command = self._held("open_call", ref, **announced(call), estimate=call.estimate)
        at, life = command.batch, command.batch.life(ref.run)
        if command.malformed or not is_call(call, f"{ref.run}~{ref.conversation}.", MODEL_DESK):
            return command.refused("schema")
        if was_used(at, call) and is_bound_by(at, ref, call):
            return command.again(desk_gen=gen_of_place(at, call))  # its answer was bound: this licence is worth nothing
        if ref.conversation != life.conversation:
            return command.refused("run_mismatch")
        opened = command.step(at.completion, "open", run=ref.run, **token_of(ref, call))
        if command.last.reason == "stale_lease":
            return command.refused()
        if command.last.verb is Verb.DUPLICATE and has_place(at, life, call):
            return command.again(desk_gen=gen_of_place(at, call))
        if life.turning:
            return command.refused_instead("turning")
        if not opened:
            return command.refused()
        intention = {"parent": call.parent, "seq": call.seq, "digest": intent_of(call)}
        if not command.step(at.transcript, "intend", **on_chain(at, ref), **intention):
            return command.refused()
        decision = self._placed(command, life, call)
        if decision.applied:
            life.intended[call.seq] = call.step
        return decision

    def _placed(self, command: Command, life: Life, call: ModelCall) -> Decision:
        """A place at the endpoint's desk, and what the call may spend set aside."""
        at = command.batch
        if not command.step(at.desks[call.desk], "acquire", step=call.step, lease=call.desk_lease):
            beside = command.last.reason == "step_in_flight"
            return command.refused(None, **(in_flight(at, life, call.desk, call.step) if beside else {}))
        if command.last.verb is Verb.DUPLICATE:  # a place that was taken before is not one for this attempt
            return command.refused("lease_reused")
        gen = command.last.fields["gen"]
        if not command.step(at.ledger, "admit", step=call.step, attempt=call.attempt, estimate=call.estimate):
            gone = command.last.reason == "over_budget"
            told = {"spent": at.ledger.spent, "reserved": at.ledger.reserved} if gone else {}
            return command.refused(None, **told)
        life.calls[call.desk_lease] = OpenCall(call.desk, call.step, call.attempt, call.request_id)
        return command.done(Answer(Verb.COMMIT, None, {"desk_gen": gen}))

    async def flush(self, ref: Ref, call: ModelCall, chunks: Sequence[Chunk]) -> Decision:
        """Bill chunks while the answer arrives; needs no live lease. Answer: billed, durable, watermark."""
        command = self._begin("flush", ref.batch, ref.run, step=call.step, attempt=call.attempt, chunks=len(chunks))
        if command.malformed or not is_step_of(call, f"{ref.run}~") or not are_chunks(chunks) or not chunks:
            return command.refused("schema")
        said = bill(command, call, chunks)
        return command.decided(said, "ledger.chunk" if said.verb is Verb.REJECT else command.name)

    async def bind_call(self, ref: Ref, call: ModelCall, desk_gen: int, reply: ModelReply) -> Decision:
        """Bind the answer: completion, transcript, ledger and desk together. Answer: head, model_left."""
        check_payload(reply.payload)
        head = next_head(call.parent, reply.payload)
        command = self._held(
            "bind_call", ref, **announced(call), desk_gen=desk_gen, head=head,
            payload_ok=reply.ok, digest=reply.digest, last_seq=reply.last_seq, chunks=len(reply.chunks),
            estimated=reply.estimated,
        )  # fmt: skip
        at, life = command.batch, command.batch.life(ref.run)
        if command.malformed or not is_call(call, f"{ref.run}~{ref.conversation}.", MODEL_DESK) or not is_reply(reply):
            return command.refused("schema")
        bill(command, call, reply.chunks, reply.estimated)
        if is_mixed_up(at, life, call):
            return command.refused("schema")
        if self._was_bound(at, ref, call, reply, head):
            return command.again(head=head, model_left=at.completion.runs[ref.run].model_left)
        if ref.conversation != life.conversation:
            return command.refused("run_mismatch")
        answered = {**token_of(ref, call), "payload_ok": reply.ok, "digest": reply.digest}
        if not command.step(at.completion, "bind", run=ref.run, **answered):
            if command.last.verb is Verb.REPLAY:
                give_up_answer(command, life, call)
                return command.done_though_refused("completion.bind")
            return command.refused()
        model_left = command.last.fields["model_left"]
        event = {"parent": call.parent, "seq": call.seq, "payload": reply.payload, "intent": intent_of(call)}
        if not command.step(at.transcript, "append", **on_chain(at, ref), **event):
            return command.refused()
        if not give_answer(command, life, call, desk_gen, reply):
            return command.refused()
        life.intended.pop(call.seq, None)
        life.writers.setdefault(life.conversation, []).append(ref.gen)
        return command.done(Answer(Verb.COMMIT, None, {"head": head, "model_left": model_left}))

    def _was_bound(self, at: MemoryBatch, ref: Ref, call: ModelCall, reply: ModelReply, head: str) -> bool:
        """Whether this very answer stands where it was to stand."""
        if ref.conversation != at.life(ref.run).conversation or not was_used(at, call):
            return False
        heads = at.chain(ref.run).heads
        bound = at.completion.bound.get(Shard(ref.run, call.step))
        same = bound is not None and is_bound_by(at, ref, call) and bound.digest == reply.digest
        return same and call.seq <= len(heads) and heads[call.seq - 1] == head

    async def drop_call(
        self,
        ref: Ref,
        call: ModelCall,
        chunks: Sequence[Chunk] = (),
        *,
        cancelled: bool,
        billed: int | None = None,
        estimated: int = 0,
    ) -> Decision:
        """Give a request up; whoever opened it may, with or without a live lease."""
        command = self._begin(
            "drop_call", ref.batch, ref.run, step=call.step, attempt=call.attempt, desk=call.desk,
            desk_lease=call.desk_lease, cancelled=cancelled, billed=billed, estimated=estimated, chunks=len(chunks),
        )  # fmt: skip
        at, life = command.batch, command.batch.life(ref.run)
        if command.malformed or not is_step_of(call, f"{ref.run}~") or not are_chunks(chunks):
            return command.refused("schema")
        bill(command, call, chunks, estimated)
        if is_mixed_up(at, life, call, request=False):
            return command.refused("schema")
        desk = at.desks[call.desk]
        place = desk.leases.get(call.desk_lease)
        if place is not None and not place.step.startswith(f"{ref.run}~"):  # another run's, and given back
            by, why = ("release", "unknown_lease") if cancelled else ("expire", "not_live")
            return command.refused_as(f"admission.{by}", why, lease=call.desk_lease)
        if place is not None and place.gone and was_settled_at(at, call, billed):
            return command.again()
        if not cancelled and place is not None and not place.gone and place.expired_ms is not None:
            return command.again()
        if not command.step(desk, "release" if cancelled else "expire", lease=call.desk_lease):
            return command.refused()
        if cancelled:
            if not settle_attempt(command, call.step, call.attempt, billed):
                return command.refused()
            life.calls.pop(call.desk_lease, None)
        return command.done()

    async def resolve(self, ref: Ref, parent: Digest, seq: int, payload: str) -> Decision:
        """Put an event `lost` in the place of an older generation's call: its answer will never come."""
        check_payload(payload)
        head = next_head(parent, payload)
        command = self._held("resolve", ref, parent=parent, seq=seq, head=head)
        at, life = command.batch, command.batch.life(ref.run)
        if command.malformed or not payload:
            return command.refused("schema")
        if ref.conversation != life.conversation:
            return command.refused("run_mismatch")
        chain = at.chain(ref.run)
        intended = chain.intentions.get(seq)
        lost = life.intended.get(seq)  # a fan-out's effects are known to others, and joined
        intent = intended.digest if intended is not None and lost is not None else "none"
        open_one = {} if lost is None else in_flight(at, life, MODEL_DESK, lost)
        if open_one and at.holder_is_live(ref.run, ref.lease_id, ref.gen):
            return command.refused("step_in_flight", **open_one)
        event = {"parent": parent, "seq": seq, "payload": payload, "intent": intent}
        if not command.step(at.transcript, "append", **on_chain(at, ref), **event):
            return command.refused()
        standing = {"head": chain.head, "length": chain.length}
        if command.last.verb is Verb.DUPLICATE:
            return command.again(**standing)
        life.intended.pop(seq, None)
        life.writers.setdefault(life.conversation, []).append(ref.gen)
        return command.done(Answer(Verb.COMMIT, None, standing))

    async def has_room(self, ref: Ref, call: ModelCall) -> bool:
        """Whether a call may be worth announcing again."""
        at = self._of(ref.batch)
        money, place = at.ledger, at.desks[call.desk]
        affordable = not money.reserved or money.spent + money.reserved + call.estimate <= money.budget
        return call.step in place.live or (place.in_flight < place.bound and affordable)

    async def open_judge(self, ref: Ref, call: ModelCall) -> Decision:
        """`open_call` under a scorer's lease: the budget and the judge's desk alone."""
        command = self._begin(
            "open_judge", ref.batch, ref.run, lease_id=ref.lease_id, gen=ref.gen, **named(call),
            request_id=call.request_id, prompt_hash=call.prompt_hash, estimate=call.estimate,
        )  # fmt: skip
        at, life = command.batch, command.batch.life(ref.run)
        if command.malformed or not is_call(call, f"{ref.run}~j{ref.gen}.", JUDGE_DESK):
            return command.refused("schema")
        if was_used(at, call) and is_committed_by(at, call):
            return command.again(desk_gen=gen_of_place(at, call))
        if not at.scorer_is_live(ref.run, ref.lease_id, ref.gen):
            return command.refused("stale_lease")
        if has_place(at, life, call):
            return command.again(desk_gen=gen_of_place(at, call))
        return self._placed(command, life, call)

    async def bind_judge(self, ref: Ref, call: ModelCall, desk_gen: int, reply: ModelReply) -> Decision:
        """`bind_call` under a scorer's lease: the ledger and the judge's desk alone; `payload` is not kept."""
        command = self._begin(
            "bind_judge", ref.batch, ref.run, lease_id=ref.lease_id, gen=ref.gen, **named(call),
            request_id=call.request_id, desk_gen=desk_gen, payload_ok=reply.ok, digest=reply.digest,
            last_seq=reply.last_seq, chunks=len(reply.chunks), estimated=reply.estimated,
        )  # fmt: skip
        at, life = command.batch, command.batch.life(ref.run)
        own_step = is_call(call, f"{ref.run}~j{ref.gen}.", JUDGE_DESK)
        if command.malformed or not own_step or not is_reply(reply, kept=False):
            return command.refused("schema")
        bill(command, call, reply.chunks, reply.estimated)
        if is_mixed_up(at, life, call):
            return command.refused("schema")
        if was_used(at, call) and at.desks[JUDGE_DESK].committed.get(call.step) == Body(call.desk_lease, reply.digest):
            return command.again()
        if not at.scorer_is_live(ref.run, ref.lease_id, ref.gen):
            return command.refused("stale_lease")
        if not reply.ok:
            command.note(command.name, Answer(Verb.REPLAY, "payload_corrupt"))
            give_up_answer(command, life, call)
            return command.done_though_refused(command.name)
        if not give_answer(command, life, call, desk_gen, reply):
            return command.refused()
        return command.done()
