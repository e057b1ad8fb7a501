"""The bus on a server: `bus.port.Bus` over the scripts in `lua/run`.

Each method that changes state sends one script. What it sends twice is applied once; see `bus.link` for when it does.

redis_steps.py     what every call needs;  redis_rows.py: what is read without a script;  redis_blobs.py: bytes
redis_streams.py   what a group reads, and takes over
redis_planner.py   a batch from its declaration to its close
redis_calls.py     calls of models;  redis_tools.py: of tools, and the events that are the holder's own to add

Here are the steps of who holds a run, or its score.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bus.at_once import all_of
from bus.chain import next_head
from bus.envelopes import check_payload
from bus.link import Link
from bus.port import Entry, Group, Held, Judgement, Ref
from bus.redis_blobs import Blobs
from bus.redis_calls import CallSteps
from bus.redis_planner import PlannerSteps
from bus.redis_rows import Rows
from bus.redis_streams import GroupStreams
from bus.redis_tools import ToolSteps
from bus.rests import Rests
from bus.scripts import script
from bus.types import BatchId, ConsumerId, Decision, Digest, EntryId, LeaseId

__all__ = ["RedisBus"]

_BEAT_AT_ONCE = 500  # leases, and entries, in one heartbeat: its script is bounded work, too


class RedisBus(Rows, Blobs, GroupStreams, PlannerSteps, CallSteps, ToolSteps):
    """See the module's text."""

    async def of(self, batch: BatchId) -> RedisBus:
        """The bus of the shard where a batch is: this one. `bus.cluster.ShardedBus` has more."""
        return self

    async def put_beside(self, batch: BatchId, other: BatchId) -> None:
        """See `bus.cluster.ShardedBus`: here all batches are beside each other."""

    @property
    def link(self) -> Link:
        """The connection for scripts and reads."""
        return self._link

    @property
    def rests(self) -> Rests:
        """Who takes no work now."""
        return Rests(self._link, self.plane, self.shard)

    # --- worker ------------------------------------------------------------------------------------------

    async def claim(self, entry: Entry, lease_id: LeaseId, consumer: ConsumerId) -> Decision:
        """Mint the one lease of a run, in every fence that the batch declares. Answer: see `bus.port`."""
        decision = await self._step(
            "claim", entry.batch, run=entry.run, lease_id=lease_id, entry=entry.id, consumer=consumer
        )
        if not decision.applied:
            return decision
        answer = decision.answer
        said = {**answer, "turning": bool(answer["turning"]), "wrote": bool(answer["wrote"])}
        return Decision(decision.verb, decision.reason, decision.by, said)

    async def heartbeat(self, group: Group, consumer: ConsumerId, held: Held) -> list[Decision]:
        """Keep what is held alive; one decision a lease, in the order of `held.leases`."""
        batches = sorted({ref.batch for ref in held.leases} | {entry.batch for entry in held.entries})
        beats = []
        for batch in batches:
            leases = [ref for ref in held.leases if ref.batch == batch]
            entries = [entry.id for entry in held.entries if entry.batch == batch]
            for start in range(0, max(len(leases), len(entries)), _BEAT_AT_ONCE):
                piece = slice(start, start + _BEAT_AT_ONCE)
                beats.append(self._beat(group, consumer, batch, leases[piece], entries[piece]))
        answers = {ref: decision for said in await all_of(beats) for ref, decision in said.items()}
        return [answers[ref] for ref in held.leases]

    async def _beat(
        self,
        group: Group,
        consumer: ConsumerId,
        batch: BatchId,
        leases: Sequence[Ref],
        entries: Sequence[EntryId],
    ) -> dict[Ref, Decision]:
        keys = self.keys(batch)
        target = script("run.heartbeat")
        scope: dict[str, object] = {
            **self._scope(batch),
            "stream": keys.stream(group.stream),
            "rows": [keys.run(ref.run) for ref in leases],
        }
        items = [part for ref in leases for part in (ref.run, ref.lease_id, str(ref.gen), str(ref.epoch))]
        fields = {"group": group.on_server, "consumer": consumer, "leases": len(leases), "entries": len(entries)}
        ask = partial(self._send, target, batch, scope, {"items": [*items, *entries]}, fields)
        decisions = await self._settled(batch, ask)
        if len(decisions) != len(leases):  # one answer for all: the batch is not there
            [said] = decisions
            decisions = [said] * len(leases)
        return dict(zip(leases, decisions, strict=True))

    async def seal(self, ref: Ref, parent: Digest, seq: int, payload: str, tree_hash: str, artifact: str) -> Decision:
        """Append the answer, seal, emit the score message, acknowledge the run's entry. Answer: head."""
        check_payload(payload)
        return await self._step(
            "seal", ref.batch, run=ref.run, extra_argv={"payload": payload}, lease_id=ref.lease_id, gen=ref.gen,
            conversation=ref.conversation, parent=parent, seq=seq, head=next_head(parent, payload),
            tree_hash=tree_hash or None, artifact=artifact or None,
        )  # fmt: skip

    async def give_back(self, ref: Ref, machine: str = "", *, seen: bool = False) -> Decision:
        """Hand a run back at once (`yield`): fence the lease, emit a new entry, acknowledge the old."""
        return await self._hand_back("yield", ref, machine, seen=seen)

    async def hole(self, ref: Ref, why: str, detail: str) -> Decision:
        """End the run as a named hole."""
        return await self._step(
            "hole", ref.batch, run=ref.run, extra_argv={"detail": detail[:2_000]},
            lease_id=ref.lease_id or None, gen=ref.gen, why=why,
        )  # fmt: skip

    # --- scorer ------------------------------------------------------------------------------------------

    async def score_claim(self, entry: Entry, lease_id: LeaseId, consumer: ConsumerId) -> Decision:
        """Fence the scoring epoch. Answer: epoch, attempts, head, tree_hash, artifact and the bind token."""
        return await self._step(
            "score_claim", entry.batch, run=entry.run, lease_id=lease_id, entry=entry.id, consumer=consumer
        )

    async def score(self, ref: Ref, judgement: Judgement) -> Decision:
        """Sign the score. `ref.gen` is the scoring epoch."""
        return await self._step(
            "score", ref.batch, run=ref.run, lease_id=ref.lease_id, gen=ref.gen, head=judgement.head,
            tree_hash=judgement.tree_hash or None,
            observed_candidate=judgement.candidate or None, observed_judge=judgement.judge or None,
            judge_epoch=judgement.judge_epoch, score_digest=judgement.score_digest, bin=judgement.bin,
            value=judgement.value,
            detail=judgement.detail[:2_000] or None,
        )  # fmt: skip

    async def score_give_back(self, ref: Ref, machine: str = "", *, seen: bool = False) -> Decision:
        """Hand a score back at once."""
        return await self._hand_back("score_yield", ref, machine, seen=seen)

    async def _hand_back(self, step: str, ref: Ref, machine: str, *, seen: bool) -> Decision:
        return await self._step(
            step,
            ref.batch,
            run=ref.run,
            lease_id=ref.lease_id,
            gen=ref.gen,
            machine=machine or None,
            seen=int(seen) or None,
        )

    async def score_hole(self, ref: Ref, why: str, detail: str) -> Decision:
        """End a sealed run as a named hole."""
        return await self._step(
            "score_hole", ref.batch, run=ref.run, extra_argv={"detail": detail[:2_000]},
            lease_id=ref.lease_id or None, gen=ref.gen, why=why,
        )  # fmt: skip

    # --- life --------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Close the connections."""
        self._together.close()
        self._commit.close()
        self._syncing.close()
        self._link.close()
        self._reader.close()
