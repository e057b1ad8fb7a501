"""Fence 2, outbox: one planner step, one side effect.

Problem   a planner that timed out plans again, a queue delivers again, a worker dies between the call and its outcome:
          the tool is called twice, or an effect stands that nobody remembers.
States    queued ── claim ──▶ executing ── sent ──▶ awaiting_ack ── complete ──▶ committed | failed
            ▲                  │   └───── complete ─────┼──────────────────────────▲
            └──── recover ─────┘                        │ recover, past the bound
                                                        ├─▶ compensating ── its undo ──▶ compensated | stuck
                                                        └─▶ stuck, where there is no inverse
          committed ── revoke ──▶ compensating
          An undo is an intent of its own, `<id>~undo`, and has none itself.
Invariants
  P1 a call that may have left is never made again: awaiting_ack leads to an outcome or an undo, never back.
  P2 an intent comes from its put, or is the named undo of one; no timeout mints any.
  P3 an outcome is bound under the row's gen.        P4 by the executor that holds the claim.
  P5 a success counts only with its own key echoed.  P6 what is final changes by a revoke only, a job never.
  P7 an intent is compensated, or stuck by its undo, exactly when that undo says so.
  P8 no executor takes an intent twice.              L1 every intent can be brought to an end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from bus.models.model import Answer, Model, commit, compensate, duplicate, in_doubt, reject

__all__ = ["UNDO", "Intent", "Outbox", "State", "undone_by"]

UNDO = "~undo"


class State(StrEnum):
    """The life of an intent; all but the first three and `compensating` are ends."""

    QUEUED = "queued"
    EXECUTING = "executing"
    AWAITING_ACK = "awaiting_ack"
    COMMITTED = "committed"
    FAILED = "failed"
    COMPENSATING = "compensating"
    COMPENSATED = "compensated"
    STUCK = "stuck"


@dataclass(slots=True)
class Intent:
    """One side effect: what is to be called, and how far it got."""

    tool: str
    args: Mapping[str, object]
    gen: int
    state: State = State.QUEUED
    executor: str | None = None
    """Who claimed it last; None while it is queued."""
    claimed: set[str] = field(default_factory=set)
    """Every executor that ever claimed it."""
    sent_ms: int = 0
    observation: str | None = None

    @property
    def known(self) -> dict[str, object]:
        """The observation, once there is one."""
        return {} if self.observation is None else {"observation": self.observation}


def undone_by(intent_id: str) -> str | None:
    """The intent that an undo undoes; None for any other."""
    return intent_id.removesuffix(UNDO) if intent_id.endswith(UNDO) else None


def _spelt(args: Mapping[str, object]) -> str:
    """Equal for equal JSON values, whatever the order of their keys: `true` is not `1`, nor `1` `1.0`."""
    return json.dumps(args, sort_keys=True)


class Outbox(Model):
    """The intents of one batch."""

    FENCE = "outbox"
    CONFIG = "ack_bound_ms int1, inverses obj"
    OPS: ClassVar = {
        "put": "intent_id str, gen int, tool str, args obj",
        "claim": "intent_id str, gen int, executor str",
        "sent": "intent_id str, gen int, executor str",
        "complete": "intent_id str else unkeyed, gen int else unkeyed, executor str else unkeyed, "
        "ok bool, echo str?, observation str",
        "advance": "intent_id str, gen int",
        "recover": "intent_id str",
        "revoke": "intent_id str, gen int",
    }
    BEFORE_SCHEMA: ClassVar = frozenset({"unkeyed"})

    def __init__(
        self, *, ack_bound_ms: int, inverses: Mapping[str, object], draw: Callable[[], str] | None = None
    ) -> None:
        """`ack_bound_ms` after `sent`, silence is called over. `inverses`: tool → the tool that undoes it."""
        super().__init__(draw=draw)
        self.ack_bound_ms = ack_bound_ms
        self.inverses = {tool: name for tool, name in inverses.items() if isinstance(name, str) and name}
        self.intents: dict[str, Intent] = {}

    def put(self, *, intent_id: str, gen: int, tool: str, args: Mapping[str, object]) -> Answer:
        if intent_id.endswith(UNDO):
            return reject("schema")
        if at := self.intents.get(intent_id):
            if (at.tool, _spelt(at.args)) != (tool, _spelt(args)):
                return reject("args_mismatch", tool=at.tool, args=at.args)
            return duplicate(gen=at.gen, state=at.state.value, tool=at.tool, args=at.args, **at.known)

        self.intents[intent_id] = Intent(tool, args, gen)
        return commit(gen=gen, state=State.QUEUED.value, tool=tool, args=args)

    def claim(self, *, intent_id: str, gen: int, executor: str) -> Answer:
        at = self.intents.get(intent_id)
        if at is None:
            return reject("unknown_intent")
        if gen != at.gen:
            return reject("stale_gen")
        if at.state is State.EXECUTING and at.executor == executor:
            return duplicate(tool=at.tool, args=at.args)
        if at.state is not State.QUEUED:
            return reject("not_queued")
        if executor in at.claimed:
            return reject("executor_reused")

        at.state, at.executor = State.EXECUTING, executor
        at.claimed.add(executor)
        return commit(tool=at.tool, args=at.args)

    def sent(self, *, intent_id: str, gen: int, executor: str) -> Answer:
        at = self.intents.get(intent_id)
        if at is None:
            return reject("unknown_intent")
        if gen != at.gen:
            return reject("stale_gen")
        if at.state is State.AWAITING_ACK and at.executor == executor:
            return duplicate()
        if at.state is not State.EXECUTING or at.executor != executor:
            return reject("not_claimed")

        at.state, at.sent_ms = State.AWAITING_ACK, self.now_ms
        return commit()

    def complete(
        self, *, intent_id: str, gen: int, executor: str, ok: bool, observation: str, echo: str | None = None
    ) -> Answer:
        outcome = State.COMMITTED if ok else State.FAILED
        at = self.intents.get(intent_id)
        if at is None:
            return reject("unknown_intent")
        if self._stale(at, gen):
            return reject("stale_gen")
        if at.state in (State.COMMITTED, State.FAILED):
            same = (at.state, at.observation) == (outcome, observation)
            return duplicate(state=at.state.value) if same else reject("already_final")
        if at.state in (State.COMPENSATING, State.COMPENSATED, State.STUCK):
            return reject("already_final")
        if at.state is State.QUEUED or self._foreign(at, executor):
            return reject("not_claimed")
        if ok and not self._echoed(intent_id, echo):
            return in_doubt("missing_echo")

        at.state, at.observation = outcome, observation
        undone = undone_by(intent_id)
        if undone is not None:
            self.intents[undone].state = State.COMPENSATED if ok else State.STUCK
        return commit(state=outcome.value)

    def advance(self, *, intent_id: str, gen: int) -> Answer:
        at = self.intents.get(intent_id)
        if at is None:
            return reject("unknown_intent")
        if gen != at.gen:
            return reject("stale_gen")

        at.gen += 1
        return commit(gen=at.gen, state=at.state.value)

    def recover(self, *, intent_id: str) -> Answer:
        at = self.intents.get(intent_id)
        if at is None:
            return reject("unknown_intent")
        if at.state not in (State.EXECUTING, State.AWAITING_ACK, State.COMPENSATING):
            return duplicate(state=at.state.value, **at.known)
        if at.state is State.EXECUTING:  # the call never left
            at.state, at.executor = State.QUEUED, None
            return commit(state=State.QUEUED.value)
        undo_id = intent_id + UNDO
        if at.state is State.AWAITING_ACK:
            if self.now_ms - at.sent_ms < self.ack_bound_ms:
                return in_doubt("awaiting_ack", state=at.state.value)
            undone = undone_by(intent_id)
            if undone is not None:
                at.state = self.intents[undone].state = State.STUCK
                return reject("stuck", state=State.STUCK.value)
            if at.tool not in self.inverses:
                at.state = State.STUCK
                return reject("stuck", state=State.STUCK.value)

            at.state = State.COMPENSATING
            self.intents[undo_id] = Intent(self.inverses[at.tool], at.args, gen=0)
        return compensate(state=State.COMPENSATING.value, undo_id=undo_id)

    def revoke(self, *, intent_id: str, gen: int) -> Answer:
        at = self.intents.get(intent_id)
        undo_id = intent_id + UNDO
        if at is None:
            return reject("unknown_intent")
        if gen != at.gen:
            return reject("stale_gen")
        if at.state in (State.COMPENSATING, State.COMPENSATED):
            return duplicate(undo_id=undo_id)
        if at.state is not State.COMMITTED:
            return reject("not_committed")
        if undone_by(intent_id) is not None or at.tool not in self.inverses:
            return reject("stuck")

        at.state = State.COMPENSATING
        self.intents[undo_id] = Intent(self.inverses[at.tool], at.args, gen=0)
        return commit(undo_id=undo_id)

    def _stale(self, at: Intent, gen: int) -> bool:
        """An outcome of a generation that the planner gave up."""
        return gen != at.gen

    def _foreign(self, at: Intent, executor: str) -> bool:
        """The outcome of another's call, or of one that was never made."""
        return executor != at.executor

    def _echoed(self, intent_id: str, echo: str | None) -> bool:
        """Whether the tool showed that it knows this call by its key."""
        return echo == intent_id

    def state(self) -> dict[str, object]:
        """See `Model.state`."""
        return {
            "intents": {
                intent_id: {
                    "gen": at.gen,
                    "state": at.state.value,
                    "tool": at.tool,
                    "args": dict(at.args),
                    "observation": at.observation,
                }
                for intent_id, at in self.intents.items()
            },
        }
