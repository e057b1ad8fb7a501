"""Fences with a check taken out: a simulation that does not find them proves nothing. For tests only.

Most are the naive policies of `bus.models.mutants`, in the place of the fence's own model. A step of the pipeline asks
several fences, and what one of them lets pass another may refuse; so the policies that are used here are those of which
nobody else makes up for the missing check. The fence `run` stands for the steps themselves: how they count hand-backs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from bus.errors import InputError
from bus.memory.batch import MemoryBatch
from bus.memory.hand_backs import HandBacks
from bus.models import MUTANTS, Answer, Model
from bus.models.indoubt import InDoubt
from bus.models.model import commit
from bus.models.plane import Plane
from workers.simulating.hand_backs import RULES, Lives

__all__ = ["OWN", "Mutant"]

T = TypeVar("T")


class SharedSlots(InDoubt):
    """A slot is a name: whoever wants it has it, whoever else does."""

    def reserve(self, *, run: str, slot: str, key: str, epoch: int, ttl_ms: int, lease_id: str) -> Answer:
        """Each call has a slot of its own, under the name of the one that it asked for."""
        answer = super().reserve(
            run=run, slot=f"{slot} of {key}", key=key, epoch=epoch, ttl_ms=ttl_ms, lease_id=lease_id
        )
        return commit(lease_id=lease_id, slot=slot) if answer == commit(**answer.fields) else answer


class Boundless(Plane):
    """The shadow plane has room for whoever comes."""

    def _shadow_in_flight(self) -> int:
        return 0


OWN: Final[Mapping[str, Mapping[str, type[Model]]]] = {
    "indoubt": {"shared_slots": SharedSlots},
    "plane": {"boundless": Boundless},
}
"""Fence → policy → the model that follows it, of those that are not in `bus.models.mutants`."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A policy of a fence, or a rule of hand-backs."""

    fence: str
    policy: str

    @property
    def model(self) -> type[Model]:
        """The model that follows it. Raises InputError when there is none."""
        return self._found({**MUTANTS.get(self.fence, {}), **OWN.get(self.fence, {})})

    @property
    def rule(self) -> type[HandBacks]:
        """Likewise, of the fence `run`."""
        return self._found(RULES)

    def _found(self, known: Mapping[str, type[T]]) -> type[T]:
        if self.policy not in known:
            raise InputError(f"fence {self.fence!r} has no policy {self.policy!r}")
        return known[self.policy]

    def take_over(self, batch: MemoryBatch) -> None:
        """Take the place of the fence in a batch that has nothing in it yet."""
        if self.fence == "run":
            batch.lives = Lives(self.rule)
            return
        models = batch.desks.values() if self.fence == "admission" else [getattr(batch, self.fence)]
        for model in models:
            model.__class__ = self.model  # it adds no state: what the fence has is what it starts with
