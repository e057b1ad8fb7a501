"""The naive policies that fence outbox exists against."""

from __future__ import annotations

from collections.abc import Mapping

from bus.models.model import Answer, Model, Verb
from bus.models.outbox import Intent, Outbox, State

__all__ = ["MUTANTS"]


class NewIntentOnTimeout(Outbox):
    """A planner that gave up waiting plans the step anew, under a new identity: silence was failure."""

    def advance(self, *, intent_id: str, gen: int) -> Answer:
        answer = super().advance(intent_id=intent_id, gen=gen)
        at = self.intents.get(intent_id)
        if answer.verb is Verb.COMMIT and at is not None and at.state in (State.EXECUTING, State.AWAITING_ACK):
            self.intents[f"{intent_id}/{at.gen}"] = Intent(at.tool, at.args, gen=0)
        return answer


class NoIdempotencyHeader(Outbox):
    """Calls go out without their key, and any 2xx is a success."""

    def _echoed(self, intent_id: str, echo: str | None) -> bool:
        return True


class CompletionIgnoresGen(Outbox):
    """An outcome is an outcome, whoever has given up waiting for it."""

    def _stale(self, at: Intent, gen: int) -> bool:
        return False


class CompletionIgnoresExecutor(Outbox):
    """An outcome is an outcome, whoever made the call."""

    def _foreign(self, at: Intent, executor: str) -> bool:
        return False


MUTANTS: Mapping[str, type[Model]] = {
    "new_intent_on_timeout": NewIntentOnTimeout,
    "no_idempotency_header": NoIdempotencyHeader,
    "completion_ignores_gen": CompletionIgnoresGen,
    "completion_ignores_executor": CompletionIgnoresExecutor,
}
"""Policy → the model that follows it."""
