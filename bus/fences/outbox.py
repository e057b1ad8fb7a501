"""Fence 2, outbox: one planner step, one side effect.

Problem   a planner that timed out plans again, a queue delivers again, a worker dies between the call and its outcome:
          the tool is called twice, or an effect stands that nobody remembers.

States    of an intent
              queued ── claim ──▶ executing ── sent ──▶ awaiting_ack ── complete ──▶ committed | failed
                ▲                  │   └───── complete ─────┼──────────────────────────▲
                └──── recover ─────┘                        │ recover, past the bound
                                                            ├─▶ compensating ── its undo ──▶ compensated | stuck
                                                            └─▶ stuck, where there is no inverse
              committed ── revoke ──▶ compensating, when the conversation that asked for the effect is given up
          `advance` takes the generation away in any of them, and changes none of them. An undo is an intent of its
          own, `<id>~undo`, with the inverse tool and the same arguments; it has no undo itself.

Invariants
  P1 a call that may have left is never made again: awaiting_ack leads to an outcome or an undo, never back.
  P2 an intent comes from its put, or is the named undo of one; no timeout mints any.
  P3 an outcome is bound under the row's gen.        P4 by the executor that holds the claim.
  P5 a success counts only with its own key echoed.  P6 what is final changes by a revoke only, a row's job never.
  P7 an intent is compensated, or stuck by its undo, exactly when that undo says so.
  P8 no executor takes an intent twice.

If a party dies
  | who, when                        | what stands           | what follows                                        |
  |----------------------------------|-----------------------|-----------------------------------------------------|
  | planner, around `put`            | the row, or nothing   | put again: duplicate, with the stored arguments     |
  |                                  |                       | and what is known by now                            |
  | planner, after `advance`         | the next generation   | resent: stale_gen; nothing runs a second time       |
  | executor, after `claim`          | executing: the call   | `recover` queues it again; the dead one's `sent`    |
  |                                  | has not left          | is not_claimed, its late claim executor_reused      |
  | executor, after `sent`, whether  | awaiting_ack          | in doubt up to the bound, and a late outcome counts;|
  | or not the call left or landed   |                       | past it the undo is queued, or the intent is stuck  |
  | executor, after `complete`       | the outcome           | resent: duplicate; another outcome: already_final   |
  | who sends `revoke`               | the undo, queued      | resent: duplicate; a late one takes nothing else    |
  | executor of an undo              | as any intent         | past its own bound both are stuck, for a person     |
  | who sends `recover`              | what it answered      | asked again: the same, for an undo is put once      |
  | server                           | what it answered      | everything above, after its restart                 |

The rows of a run's intents stand in the run's own row; so each operation names the run beside the intent.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from bus.fences.fence import Fence, Result, canonical
from bus.types import Decision, RunId

__all__ = ["IntentState", "Outbox", "OutboxReason", "OutboxResult"]


class OutboxReason(StrEnum):
    """Why an operation was not applied."""

    SCHEMA = "schema"
    """An argument is missing or malformed, or the id is one that only an undo may have."""
    ARGS_MISMATCH = "args_mismatch"
    """The intent stands with another tool or other arguments; the answer has the stored ones."""
    UNKNOWN_INTENT = "unknown_intent"
    """No such intent was ever put."""
    STALE_GEN = "stale_gen"
    """The planner has given that generation up, or it was never minted."""
    NOT_QUEUED = "not_queued"
    """Somebody has it, or it has ended."""
    EXECUTOR_REUSED = "executor_reused"
    """This executor had it before and lost it; each claim takes a fresh one."""
    NOT_CLAIMED = "not_claimed"
    """The claim is another's, or nobody's: nothing may leave, and nothing is reported."""
    UNKEYED = "unkeyed"
    """An outcome without intent, generation or executor belongs to nobody."""
    ALREADY_FINAL = "already_final"
    """Another outcome stands, or the intent was taken for lost and is being undone."""
    MISSING_ECHO = "missing_echo"
    """The tool reports success without the key of this call: whose success it is nobody knows."""
    AWAITING_ACK = "awaiting_ack"
    """The call may have landed, and its time is not over."""
    NOT_COMMITTED = "not_committed"
    """There is no effect that is known to stand, so none to be undone."""
    STUCK = "stuck"
    """An effect may stand that cannot be undone by itself: somebody must look."""


class IntentState(StrEnum):
    """How far an intent got."""

    QUEUED = "queued"
    EXECUTING = "executing"
    AWAITING_ACK = "awaiting_ack"
    COMMITTED = "committed"
    FAILED = "failed"
    COMPENSATING = "compensating"
    COMPENSATED = "compensated"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class OutboxResult(Result[OutboxReason]):
    """The answer of an outbox operation."""

    gen: int | None = None
    state: IntentState | None = None
    tool: str | None = None
    args: Mapping[str, object] | None = None
    """As they were put first, whatever the caller has sampled since."""
    observation: str | None = None
    """What the tool said; None until the intent is complete."""
    undo_id: str | None = None


class Outbox(Fence[OutboxResult]):
    """The intents of one batch's runs."""

    NAME: ClassVar[str] = "outbox"

    async def put(self, run: RunId, intent_id: str, gen: int, tool: str, args: Mapping[str, object]) -> OutboxResult:
        """Announce one side effect. Answers gen, state, tool, args and observation of the row, also as a duplicate.

        `intent_id` is derived from run, step and call index, never from the time or an attempt. `args` is a JSON object
        and part of the envelope, whose limit it shares. `args_mismatch` answers tool and args as stored.
        """
        return await self._ask("put", run=run, intent_id=intent_id, gen=gen, tool=tool, args=args)

    async def claim(self, run: RunId, intent_id: str, gen: int, executor: str) -> OutboxResult:
        """Take a queued intent. Answers tool and args. `executor` is drawn anew for each claim."""
        return await self._ask("claim", run=run, intent_id=intent_id, gen=gen, executor=executor)

    async def sent(self, run: RunId, intent_id: str, gen: int, executor: str) -> OutboxResult:
        """Say that the call is about to leave: only when this is applied may it."""
        return await self._ask("sent", run=run, intent_id=intent_id, gen=gen, executor=executor)

    async def complete(
        self,
        run: RunId,
        intent_id: str,
        gen: int,
        executor: str,
        ok: bool,
        observation: str,
        echo: str | None = None,
    ) -> OutboxResult:
        """Record what became of the call. Answers the state.

        `echo` is the idempotency key as the tool sent it back. After `sent`, `ok` is false only when the tool itself
        says that nothing was done.
        """
        return await self._ask(
            "complete",
            run=run,
            intent_id=intent_id,
            gen=gen,
            executor=executor,
            ok=ok,
            echo=echo,
            observation=observation,
        )

    async def advance(self, run: RunId, intent_id: str, gen: int) -> OutboxResult:
        """Give a generation up: what comes of it no longer binds. Answers the new gen, and the state, which stays."""
        return await self._ask("advance", run=run, intent_id=intent_id, gen=gen)

    async def recover(self, run: RunId, intent_id: str) -> OutboxResult:
        """Settle an intent whose executor is silent. Answers the state; undo_id with `compensate`."""
        return await self._ask("recover", run=run, intent_id=intent_id)

    async def revoke(self, run: RunId, intent_id: str, gen: int) -> OutboxResult:
        """Have a committed intent undone. Answers undo_id; `stuck`, and nothing changed, where no tool undoes it."""
        return await self._ask("revoke", run=run, intent_id=intent_id, gen=gen)

    async def send(self, op: str, args: Mapping[str, object]) -> Decision:
        """See `Fence`. A tool's arguments travel beside the envelope, in a form that is equal for equal arguments."""
        if op != "put":
            return _read(await super().send(op, args))
        job = args.get("args")
        text = canonical(job) if isinstance(job, dict) else b""  # the envelope shows what was presented instead
        return _read(await self._channel.decide("outbox.put", args, argv={"args": text}))

    @staticmethod
    def _result(decision: Decision) -> OutboxResult:
        answer = decision.answer
        state = answer.get("state")
        return OutboxResult(
            decision.verb,
            OutboxReason(decision.reason) if decision.reason else None,
            gen=answer.get("gen"),
            state=None if state is None else IntentState(state),
            tool=answer.get("tool"),
            args=answer.get("args"),
            observation=answer.get("observation"),
            undo_id=answer.get("undo_id"),
        )


def _read(decision: Decision) -> Decision:
    """A job's arguments are text on the server, and an object to whoever asks."""
    text = decision.answer.get("args")
    if text is None:
        return decision
    return dataclasses.replace(decision, answer={**decision.answer, "args": json.loads(text)})
