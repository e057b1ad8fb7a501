"""The steps of `bus.port_calls` on a server, and the sweep of what they leave behind."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence

from bus import keys
from bus.chain import next_head
from bus.endpoint_limits import EndpointLimits, EndpointRates
from bus.envelopes import check_payload
from bus.keys import RUNS_DESK
from bus.port_calls import Chunk, ExpiredCall, ModelCall, ModelReply
from bus.redis_steps import Steps
from bus.replies import hash_of
from bus.texts import text_of
from bus.types import BatchId, Decision, Digest, RunId, Verb
from bus.values import Ref

__all__ = ["CallSteps"]

_CHUNKS_AT_ONCE = 200  # in one script, whose work is bounded
_SWEEP_AT_ONCE = 50  # leases


class CallSteps(Steps):
    """See the module's text."""

    def limits_of(self, base_url: str, rates: EndpointRates) -> EndpointLimits:
        """What all workers on this server and plane may ask of a model endpoint together, whatever their batch."""
        name = hashlib.sha256(base_url.encode()).hexdigest()[:32]
        return EndpointLimits(self._link, keys.endpoint(self.plane, name, self.shard), rates)

    async def open_call(self, ref: Ref, call: ModelCall) -> Decision:
        """Announce a request: 4, 7, 11 and 10 together. Answer: see `bus.port_calls`."""
        return await self._step(
            "open_call", ref.batch, run=ref.run, lease_id=ref.lease_id, gen=ref.gen, conversation=ref.conversation,
            parent=call.parent, seq=call.seq, intent=_intent(call), step=call.step, request_id=call.request_id,
            attempt=call.attempt, desk=call.desk, desk_lease=call.desk_lease, prompt_hash=call.prompt_hash,
            estimate=call.estimate,
        )  # fmt: skip

    async def has_room(self, ref: Ref, call: ModelCall) -> bool:
        """Whether a call may be worth announcing again; reads three hashes, writes nothing."""
        keys = self.keys(ref.batch)
        place, money, [live] = await self._link.commands(
            [
                ("HMGET", keys.desk(call.desk), "bound", "in_flight"),
                ("HMGET", keys.batch_row, "budget", "spent", "reserved"),
                ("HMGET", keys.run(ref.run), f"d.live:{call.step}"),
            ]
        )
        bound, in_flight = (int(number or 0) for number in place)
        budget, spent, reserved = (int(number or 0) for number in money)
        affordable = not reserved or spent + reserved + call.estimate <= budget
        return bool(live) or (in_flight < bound and affordable)

    async def flush(self, ref: Ref, call: ModelCall, chunks: Sequence[Chunk]) -> Decision:
        """Bill chunks, in pieces; the first refusal is the answer, but all of them are sent."""
        decision = Decision(Verb.DUPLICATE, by="run.flush")
        for start in range(0, len(chunks), _CHUNKS_AT_ONCE):
            piece = chunks[start : start + _CHUNKS_AT_ONCE]
            said = await self._step(
                "flush", ref.batch, run=ref.run, extra_argv={"chunks": _flat(piece)},
                step=call.step, attempt=call.attempt, chunks=len(piece),
            )  # fmt: skip
            if decision.applied and (said.verb is not Verb.DUPLICATE or decision.verb is Verb.DUPLICATE):
                decision = said
        return decision

    async def bind_call(self, ref: Ref, call: ModelCall, desk_gen: int, reply: ModelReply) -> Decision:
        """Bind the answer: 10 for its chunks, then 4, 7, 10 and 11 together. Answer: head, model_left."""
        check_payload(reply.payload)
        rest = await self._ahead(ref, call, reply.chunks)
        return await self._step(
            "bind_call", ref.batch, run=ref.run, extra_argv={"payload": reply.payload, "chunks": _flat(rest)},
            lease_id=ref.lease_id, gen=ref.gen, conversation=ref.conversation, parent=call.parent, seq=call.seq,
            intent=_intent(call), head=next_head(call.parent, reply.payload), step=call.step,
            request_id=call.request_id, attempt=call.attempt, desk=call.desk, desk_lease=call.desk_lease,
            desk_gen=desk_gen, prompt_hash=call.prompt_hash, payload_ok=reply.ok, digest=reply.digest,
            last_seq=reply.last_seq, chunks=len(rest), estimated=reply.estimated,
        )  # fmt: skip

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
        """Give a request up: 10 for its chunks, then 11 and 10; needs no live lease."""
        rest = await self._ahead(ref, call, chunks)
        return await self._step(
            "drop_call", ref.batch, run=ref.run, extra_keys=self._desk_of(ref.batch, call.desk),
            extra_argv={"chunks": _flat(rest)}, step=call.step, attempt=call.attempt, desk=call.desk,
            desk_lease=call.desk_lease, chunks=len(rest), cancelled=cancelled, billed=billed, estimated=estimated,
        )  # fmt: skip

    async def resolve(self, ref: Ref, parent: Digest, seq: int, payload: str) -> Decision:
        """Put an event `lost` where a model call was announced that is not under way any more. Answer: head, length."""
        check_payload(payload)
        return await self._step(
            "resolve", ref.batch, run=ref.run, extra_argv={"payload": payload}, lease_id=ref.lease_id, gen=ref.gen,
            conversation=ref.conversation, parent=parent, seq=seq, head=next_head(parent, payload),
        )  # fmt: skip

    async def open_judge(self, ref: Ref, call: ModelCall) -> Decision:
        """Announce a request to the judge's model: 11 and 10 together. Answer: desk_gen."""
        return await self._step(
            "open_judge", ref.batch, run=ref.run, lease_id=ref.lease_id, gen=ref.gen, step=call.step,
            request_id=call.request_id, attempt=call.attempt, desk=call.desk, desk_lease=call.desk_lease,
            prompt_hash=call.prompt_hash, estimate=call.estimate,
        )  # fmt: skip

    async def bind_judge(self, ref: Ref, call: ModelCall, desk_gen: int, reply: ModelReply) -> Decision:
        """Account for the judge's answer: 10 for its chunks, then 10 and 11 together."""
        rest = await self._ahead(ref, call, reply.chunks)
        return await self._step(
            "bind_judge", ref.batch, run=ref.run, extra_argv={"chunks": _flat(rest)}, lease_id=ref.lease_id,
            gen=ref.gen, step=call.step, request_id=call.request_id, attempt=call.attempt, desk=call.desk,
            desk_lease=call.desk_lease, desk_gen=desk_gen, payload_ok=reply.ok, digest=reply.digest,
            last_seq=reply.last_seq, chunks=len(rest), estimated=reply.estimated,
        )  # fmt: skip

    async def expired_calls(self, batch: BatchId, desk: str) -> list[ExpiredCall]:
        """The requests whose places `sweep` would give back, those of nobody's that were never announced left out."""
        found = []
        for lease, step in await self._expired(batch, desk):
            row = self.keys(batch).run(RunId(step.rpartition("~")[0]))
            lines = text_of(await self._link.command("HGET", row, "calls") or b"").split("\n")
            for its_desk, its_lease, _, request, its_step in (line.split(" ", 4) for line in lines if line):
                if (its_desk, its_lease, its_step) == (desk, lease, step):
                    found.append(ExpiredCall(lease, step, request))
        return found

    async def sweep(
        self,
        batch: BatchId,
        limit: int,
        desk: str = RUNS_DESK,
        figures: Mapping[str, int] | None = None,
        asked: Collection[str] | None = None,
    ) -> Decision:
        """Give back places whose lease expired and was not released; settle the calls that had them. Answer: freed."""
        known = figures or {}
        # Those with a figure first: they need not wait.
        later = (
            set() if asked is None else {call.desk_lease for call in await self.expired_calls(batch, desk)} - {*asked}
        )
        expired = [place for place in await self._expired(batch, desk) if place[0] not in later]
        places = sorted(expired, key=lambda place: place[0] not in known)
        items: list[str] = []
        rows: list[str] = []
        for lease, step in places[: min(limit, _SWEEP_AT_ONCE)]:
            run = step if desk == RUNS_DESK else step.rpartition("~")[0]
            items += [lease, step, str(int(lease in known)), str(known.get(lease, ""))]
            rows.append(self.keys(batch).run(RunId(run)))
        if not rows:
            return Decision(Verb.COMMIT, by="run.sweep", answer={"freed": 0})
        return await self._step(
            "sweep", batch, extra_keys={"rows": rows, **self._desk_of(batch, desk)}, extra_argv={"items": items},
            desk=desk, leases=len(rows),
        )  # fmt: skip

    async def _expired(self, batch: BatchId, desk: str) -> list[tuple[str, str]]:
        """Lease and step of the places that nobody holds any more."""
        reply = await self._link.command("HGETALL", self.keys(batch).desk(desk))
        return [
            (field.removeprefix("l:"), text.split(" ", 3)[3])
            for field, text in hash_of(reply).items()
            if field.startswith("l:") and text.startswith("expired ")
        ]

    def _desk_of(self, batch: BatchId, desk: str) -> dict[str, object]:
        return {"desk_any": self.keys(batch).desk(desk)}

    async def _ahead(self, ref: Ref, call: ModelCall, chunks: Sequence[Chunk]) -> Sequence[Chunk]:
        """Flush what is more than one script takes; the rest. What is refused here is refused there again."""
        ahead = max(len(chunks) - _CHUNKS_AT_ONCE, 0)
        if ahead:
            await self.flush(ref, call, chunks[:ahead])
        return chunks[ahead:]


def _intent(call: ModelCall) -> Digest:
    """What is announced in the transcript: this step's question, whichever request will carry it."""
    text = f"{call.step}\n{call.prompt_hash}"
    return Digest(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


def _flat(chunks: Sequence[Chunk]) -> list[str]:
    return [word for one in chunks for word in (str(one.seq), str(one.tokens), str(int(one.durable)))]
