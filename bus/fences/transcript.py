"""Fence 7, transcript: an append is a two-key compare on a hash chain.

Problem   a worker that was taken for dead wakes up and writes on: its event must enter neither its successor's
          transcript nor another run's, and nobody may write on top of a history that he has not seen.

States    of a run
              free ── lease ──▶ held (lease_id, gen) ── append, intend … ──▶ held ── seal ──▶ sealed, for good
               ▲                  │        ▲ │
               └───── fence ──────┘        └─┘ lease: the next holder, gen+1, goes on from the committed prefix

Invariants
  P1 an accepted event's lease was granted to its run.      P2 its gen was the live gen when it was appended.
  P3 its lease was the live one.                            P4 a stale event is a dead letter, never copied.
  P5 the head is the hash chain over the events; a committed prefix stays, a sealed one never grows.
  P6 an intention is resolved at its place, by its name, before the seal.

If a party dies
  | who, when                            | what stands                | what follows                            |
  |--------------------------------------|----------------------------|-----------------------------------------|
  | holder, before or after `lease`      | perhaps a lease without    | resent with the same id: duplicate;     |
  |                                      | a holder                   | the next `lease` fences it              |
  | holder, between `lease` and `append` | the committed prefix       | the next holder reads it and goes on    |
  | holder, after `append`, answer lost  | the event                  | resent: duplicate, with the same head   |
  | holder, after `intend`               | a dangling intention       | `lease` tells it; the next holder       |
  |                                      |                            | appends what became of it, by its name  |
  | holder, silent but alive             | the successor's lease      | its calls are stale_gen; its events are |
  |                                      |                            | dead letters                            |
  | who sends `fence`                    | fenced, or not             | resent: stale_gen; the next holder has  |
  |                                      |                            | another gen and is not touched          |
  | server                               | what it answered           | everything above, after its restart     |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from bus.chain import next_head
from bus.envelopes import MAX_PAYLOAD
from bus.errors import InputError
from bus.fences.fence import Fence, Result, is_text
from bus.types import Decision, Digest, Gen, LeaseId, RunId

__all__ = ["Transcript", "TranscriptReason", "TranscriptResult"]


class TranscriptReason(StrEnum):
    """Why an operation was not applied."""

    SCHEMA = "schema"
    """An argument is missing or malformed."""
    SEALED = "sealed"
    """The transcript has ended."""
    LEASE_REUSED = "lease_reused"
    """This id was granted before: a late message cannot take the run back."""
    STALE_GEN = "stale_gen"
    """That generation is not live: fenced, succeeded, or never minted."""
    STALE = "stale"
    """The lease is not the live one; drop the buffer."""
    RUN_MISMATCH = "run_mismatch"
    """The lease was granted to another run."""
    LEASE_MISMATCH = "lease_mismatch"
    """Two holders quote one generation, and this is the other one."""
    FORGED_PREFIX = "forged_prefix"
    """The parent is not the head: the caller has not seen what is committed."""
    SEQ_GAP = "seq_gap"
    """The place is taken, or not the next."""
    INTENT_MISMATCH = "intent_mismatch"
    """Another effect was intended at this place, or none."""
    INTENT_CONFLICT = "intent_conflict"
    """This generation intended another effect at this place."""
    DANGLING = "dangling"
    """An older generation intended something here: recover what became of it."""
    UNRESOLVED_INTENT = "unresolved_intent"
    """An intention has no event yet: recover what became of it, then seal."""


@dataclass(frozen=True, slots=True)
class TranscriptResult(Result[TranscriptReason]):
    """The answer of a transcript operation."""

    gen: Gen | None = None
    head: Digest | None = None
    length: int | None = None
    """Number of committed events."""
    unresolved: tuple[int, ...] | None = None
    """Places that bear an intention, ascending."""


class Transcript(Fence[TranscriptResult]):
    """The transcripts of one batch's runs."""

    NAME: ClassVar[str] = "transcript"

    async def lease(self, run: RunId, lease_id: LeaseId) -> TranscriptResult:
        """Take the run under a new generation and fence the older. Answers gen, head, length, unresolved."""
        return await self._ask("lease", run=run, lease_id=lease_id)

    async def fence(self, run: RunId, gen: Gen) -> TranscriptResult:
        """Take the run away from the generation that is named, and from no other."""
        return await self._ask("fence", run=run, gen=gen)

    async def resume(self, run: RunId, lease_id: LeaseId, gen: Gen) -> TranscriptResult:
        """Ask whether the lease is still live. Answers head, length."""
        return await self._ask("resume", run=run, lease_id=lease_id, gen=gen)

    async def append(
        self,
        run: RunId,
        lease_id: LeaseId,
        gen: Gen,
        parent: Digest,
        seq: int,
        payload: str,
        intent: str | None = None,
    ) -> TranscriptResult:
        """Add one event at `seq`, counted from 1. Answers the new head.

        `intent` quotes the digest that was intended there. Raises InputError for a payload over `MAX_PAYLOAD`.
        """
        size = len(payload.encode("utf-8", "surrogatepass"))
        if size > MAX_PAYLOAD:
            raise InputError(
                f"an event of {size} bytes is over the limit of {MAX_PAYLOAD}", remedy="store it as an artifact"
            )
        return await self._ask(
            "append",
            run=run,
            lease_id=lease_id,
            gen=gen,
            parent=parent,
            seq=seq,
            payload=payload,
            intent=intent,
        )

    async def intend(
        self, run: RunId, lease_id: LeaseId, gen: Gen, parent: Digest, seq: int, digest: str
    ) -> TranscriptResult:
        """Announce the event at `seq` by the digest of its effect, before the effect starts."""
        return await self._ask("intend", run=run, lease_id=lease_id, gen=gen, parent=parent, seq=seq, digest=digest)

    async def seal(self, run: RunId, lease_id: LeaseId, gen: Gen, head: Digest) -> TranscriptResult:
        """End the transcript at `head`. Only a sealed one is scored."""
        return await self._ask("seal", run=run, lease_id=lease_id, gen=gen, head=head)

    async def send(self, op: str, args: Mapping[str, object]) -> Decision:
        """See `Fence`. An event's payload travels beside the envelope, with the head that it makes."""
        if op != "append":
            return await super().send(op, args)
        payload, parent = args.get("payload"), args.get("parent")
        if not is_text(payload):  # left in the envelope, where the history shows what was presented
            return await self._channel.decide("transcript.append", args, argv={"payload": b""})
        fields = {name: value for name, value in args.items() if name != "payload"}
        if is_text(parent):
            fields["head"] = next_head(parent, payload)
        return await self._channel.decide("transcript.append", fields, argv={"payload": payload.encode()})

    @staticmethod
    def _result(decision: Decision) -> TranscriptResult:
        answer = decision.answer
        unresolved = answer.get("unresolved")
        return TranscriptResult(
            decision.verb,
            TranscriptReason(decision.reason) if decision.reason else None,
            gen=answer.get("gen"),
            head=answer.get("head"),
            length=answer.get("length"),
            unresolved=None if unresolved is None else tuple(unresolved),
        )
