"""Fence 9, workspace: a verdict attaches to the tree that it tested.

Problem   a planner rewrites a step while a worker still tests the tree before it; or the tree drifts under the right
          number, by a build folder or a patched test. The verdict that then comes is about something else.
States    a step: none ── record ──▶ a tree under gen g, no verdict ── attach ──▶ the same, with its verdict
          record (a larger gen) and supersede (g+1) put another tree in its place and take the verdict off.
Invariants
  W1 a verdict attaches under the gen and tree hash that its step has at that moment.
  W2 a verdict stays as it is while its tree does.      W3 a tree is replaced under a larger gen only.
  W4 a verdict that is taken off is put among the cleared, with its tree.
  L1 every step can have a new tree, and that tree its verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from bus.models.model import Answer, Model, commit, duplicate, reject

__all__ = ["Cleared", "Tested", "Workspace"]


@dataclass(slots=True)
class Tested:
    """A step's tree, and the verdict on it."""

    gen: int
    tree_hash: str
    verdict: str | None = None


@dataclass(frozen=True, slots=True)
class Cleared:
    """A verdict that was taken off, with the tree that it was about."""

    step: str
    gen: int
    tree_hash: str
    verdict: str


class Workspace(Model):
    """The steps of one batch."""

    FENCE = "workspace"
    CONFIG = "schemas strs"
    OPS: ClassVar = {
        "record": "step str, gen int1, tree_hash str",
        "attach": "step str, gen int, tree_hash str, verdict str, schema str",
        "supersede": "step str, gen int, tree_hash str",
    }

    def __init__(self, *, schemas: Sequence[str], draw: Callable[[], str] | None = None) -> None:
        """`schemas`: the forms of a verdict that are known."""
        super().__init__(draw=draw)
        self.schemas = set(schemas)
        self.steps: dict[str, Tested] = {}
        self.cleared: list[Cleared] = []

    def record(self, *, step: str, gen: int, tree_hash: str) -> Answer:
        now = self.steps.get(step)
        if now and (gen, tree_hash) == (now.gen, now.tree_hash):
            return duplicate()
        if now and gen <= now.gen:
            return reject("stale_gen")

        self._replace(step, Tested(gen, tree_hash))
        return commit()

    def attach(self, *, step: str, gen: int, tree_hash: str, verdict: str, schema: str) -> Answer:
        now = self.steps.get(step)
        if schema not in self.schemas:
            return reject("schema")
        if now is None or self._stale(now, gen):
            return reject("stale_gen")
        if self._drifted(now, tree_hash):
            return reject("tree_hash")
        if now.verdict is not None:
            return duplicate() if verdict == now.verdict else reject("already_attached")

        now.verdict = verdict
        return commit()

    def supersede(self, *, step: str, gen: int, tree_hash: str) -> Answer:
        now = self.steps.get(step)
        if now is None or gen != now.gen:
            return reject("stale_gen")

        self._replace(step, Tested(gen + 1, tree_hash))
        return commit(gen=gen + 1)

    def _stale(self, now: Tested, gen: int) -> bool:
        """The verdict is about a tree that stood there before."""
        return gen != now.gen

    def _drifted(self, now: Tested, tree_hash: str) -> bool:
        """The number is right, the tree is not."""
        return tree_hash != now.tree_hash

    def _replace(self, step: str, tree: Tested) -> None:
        old = self.steps.get(step)
        if old and old.verdict is not None:
            self.cleared.append(Cleared(step, old.gen, old.tree_hash, old.verdict))
        self.steps[step] = tree

    def state(self) -> dict[str, object]:
        """See `Model.state`."""
        return {
            "steps": {
                step: {"gen": tested.gen, "tree_hash": tested.tree_hash, "verdict": tested.verdict}
                for step, tested in self.steps.items()
            },
            "cleared": [
                {"step": old.step, "gen": old.gen, "tree_hash": old.tree_hash, "verdict": old.verdict}
                for old in self.cleared
            ],
        }
