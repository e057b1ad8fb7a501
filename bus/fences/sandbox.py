"""Fence 8, sandbox: a receipt counts where its bytes still are.

Problem   a write was acknowledged, then the replica that held it vanished: to commit its step on the receipt alone is
          to build on a file that no disk has; and a tool that reached outside cannot be told from one that did not.

States    of a step
              none ── plan ──▶ pending ── write ──▶ fenced ── join ──▶ committed, for good, also when the replica goes
                                                     │  ▲
                        its bytes were lost          │  ├── write again: a new receipt
                          and stay in the workspace: ├──┴── join ──▶ rejected, until it is written again
                          and it escapes:            └── join, write ──▶ compensated, for good: run its undo
          of a workspace
              gone ── acquire ──▶ live (epoch), beating ── preempt, or silence ──▶ gone
                                   └── acquire: the next life, and the old epoch is stale
          of a write
              held while its workspace is live. An acquire names the index up to which the disk still has the log:
              what is behind it is lost for good, what is up to it is held again.

Invariants
  B1 a step is committed under an epoch that is live at the join.
  B2 a step is committed while its bytes are on the live disk.
  B3 a step that escapes is compensated, never rejected; one that does not is never compensated.
  B4 committed and compensated are ends, and a committed step keeps its receipt.
  B5 a log index is never given out twice, and an epoch only grows.
  B6 a receipt names one write for ever.
  B7 a step's outcome is decided by its own write only: not while that is held, unless it is committed.
  B8 a workspace is live for the whole of its time after each sign of life, unless it is preempted.
  L1 every step can still be committed, unless it was compensated.

If a party dies
  | who, when                          | what stands               | what follows                                      |
  |------------------------------------|---------------------------|---------------------------------------------------|
  | planner, around `plan`             | the step, or none         | resent: duplicate                                 |
  | replica, after `acquire`, no answer| a live epoch, or none     | resent with the same command id: duplicate; never |
  |                                    |                           | resent: it ends by silence                        |
  | replica, after `write`, no answer  | the write, held           | resent: duplicate, with the same receipt          |
  | replica, between `write` and `join`| a fenced step, bytes lost | its join decides the step: rejected, compensated; |
  |                                    |                           | or the disk comes back, proves it, and it counts  |
  | replica, after `join`              | the step, committed       | resent: duplicate                                 |
  | replica, silent but alive          | its successor's epoch     | its writes and joins are stale_epoch; they decide |
  |                                    |                           | nothing about what its successor holds            |
  | who sends `preempt`                | preempted, or not         | resent: stale_epoch; the next life is another     |
  |                                    |                           | epoch and is not touched                          |
  | who was to run the undo            | a compensated step        | asked again: compensate, the same undo id         |
  | server                             | what it answered          | everything above, after its restart               |

Steps, workspaces and writes are kept in the row of the run that they belong to; so each operation names the run too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar

from bus.fences.fence import Fence, Result
from bus.types import Decision, Digest, RunId

__all__ = ["Sandbox", "SandboxReason", "SandboxResult", "StepState"]

_DRAWN: Mapping[str, str] = MappingProxyType({"acquire": "command", "write": "receipt"})
"""Operation → the random id that belongs to the command and tells its resend from another."""


class StepState(StrEnum):
    """What became of a step."""

    PENDING = "pending"
    FENCED = "fenced"
    """Written, not joined."""
    COMMITTED = "committed"
    REJECTED = "rejected"
    """Its bytes were lost; it may be written again."""
    COMPENSATED = "compensated"
    """Its bytes were lost, and something may have left the workspace: run its undo."""


class SandboxReason(StrEnum):
    """Why an operation was not applied."""

    SCHEMA = "schema"
    """An argument is missing or malformed."""
    STEP_CONFLICT = "step_conflict"
    """The step was planned, or written, otherwise."""
    COMMAND_REUSED = "command_reused"
    """This id was drawn for another acquire."""
    UNKNOWN_INDEX = "unknown_index"
    """No write ever had that index: the replica says that it has what nobody gave it."""
    STALE_EPOCH = "stale_epoch"
    """That life of the workspace is over; or the step's bytes are lost, and the answer's state is `rejected`."""
    UNKNOWN_STEP = "unknown_step"
    """The planner minted no such step."""
    RECEIPT_REUSED = "receipt_reused"
    """This id was drawn for another write."""
    UNKNOWN_RECEIPT = "unknown_receipt"
    """It is not the receipt of the step's latest write in this workspace."""


@dataclass(frozen=True, slots=True)
class SandboxResult(Result[SandboxReason]):
    """The answer of a sandbox operation."""

    epoch: int | None = None
    kept: tuple[str, ...] | None = None
    """Steps whose writes the disk was taken to have still, in log order."""
    receipt: str | None = None
    log_index: int | None = None
    """The write's place in its workspace's log, counted from 1."""
    state: StepState | None = None
    undo_id: str | None = None
    """The undo to run, on `compensate`."""


class Sandbox(Fence[SandboxResult]):
    """The workspaces of one batch's runs, and the steps that write to them."""

    NAME: ClassVar[str] = "sandbox"

    async def plan(self, run: RunId, step: str, *, escapes: bool) -> SandboxResult:
        """Mint a step. `escapes`: its tool's effect can leave the workspace."""
        return await self._ask("plan", run=run, step=step, escapes=escapes)

    async def acquire(self, run: RunId, workspace: str, known_index: int, command: str | None = None) -> SandboxResult:
        """Begin a life of the workspace; its disk has the writes up to `known_index`, 0 for none. Answers epoch, kept.

        The command id is drawn here; whoever must ask again after a lost answer draws it himself and gives the same
        one again.
        """
        return await self._ask("acquire", run=run, workspace=workspace, known_index=known_index, command=command)

    async def heartbeat(self, run: RunId, workspace: str, epoch: int) -> SandboxResult:
        """Say that the workspace is still there. One that is silent for the batch's `heartbeat_ms` is preempted."""
        return await self._ask("heartbeat", run=run, workspace=workspace, epoch=epoch)

    async def preempt(self, run: RunId, workspace: str, epoch: int) -> SandboxResult:
        """End the life of the workspace that is named, and no other."""
        return await self._ask("preempt", run=run, workspace=workspace, epoch=epoch)

    async def write(
        self,
        run: RunId,
        workspace: str,
        step: str,
        epoch: int,
        path: str,
        digest: Digest,
        receipt: str | None = None,
    ) -> SandboxResult:
        """Say what the step put on the workspace's disk. Answers receipt and log_index; undo_id on `compensate`.

        A retry after a loss is a new write, with a new receipt. The receipt is drawn as the command id of `acquire` is.
        """
        return await self._ask(
            "write", run=run, workspace=workspace, step=step, epoch=epoch, path=path, digest=digest, receipt=receipt
        )

    async def join(self, run: RunId, workspace: str, step: str, receipt: str, epoch: int) -> SandboxResult:
        """Count the step as done, if the live disk has its bytes. Answers the step's state; undo_id on `compensate`."""
        return await self._ask("join", run=run, workspace=workspace, step=step, receipt=receipt, epoch=epoch)

    async def send(self, op: str, args: Mapping[str, object]) -> Decision:
        """See `Fence`. What an `acquire` or a `write` did not draw is drawn here."""
        drawn = _DRAWN.get(op)
        if drawn is not None and args.get(drawn) is None:
            args = {**args, drawn: self._channel.runtime.token()}
        return await super().send(op, args)

    @staticmethod
    def _result(decision: Decision) -> SandboxResult:
        answer = decision.answer
        kept, state = answer.get("kept"), answer.get("state")
        return SandboxResult(
            decision.verb,
            SandboxReason(decision.reason) if decision.reason else None,
            epoch=answer.get("epoch"),
            kept=None if kept is None else tuple(kept),
            receipt=answer.get("receipt"),
            log_index=answer.get("log_index"),
            state=None if state is None else StepState(state),
            undo_id=answer.get("undo_id"),
        )
