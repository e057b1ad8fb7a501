"""Fence 9, workspace: a verdict attaches to the tree that it tested.

Problem   a planner rewrites a step while a worker still tests the tree before it; or the tree drifts under the right
          generation, by a build folder or a patched test. The verdict that then comes is about something else.

States    of a step
              none ── record ──▶ tree under gen g, no verdict ── attach ──▶ tree under gen g, with its verdict, for good
                                   ▲                                          │
                                   └──── record (a larger gen), supersede ◀───┘ the verdict goes into the history

The hash is of the tree's paths, modes and contents, without what a named list ignores. The control side computes it
before dispatch, and the worker echoes it. What a worker hands in is an artifact of an untrusted producer: the control
side unpacks it, hashes it itself, and attaches under that hash.

Invariants
  W1 a verdict attaches under the gen and tree hash that its step has at that moment.
  W2 a verdict stays as it is while its tree does.      W3 a tree is replaced under a larger gen only.
  W4 a verdict that is taken off stands in the history, with its tree.
  L1 every step can have a new tree, and that tree its verdict.

If a party dies
  | who, when                        | what stands            | what follows                                     |
  |----------------------------------|------------------------|--------------------------------------------------|
  | planner, around `record`         | the tree, or none      | resent: duplicate                                |
  | worker, before its verdict       | the tree, no verdict   | another tests the same tree, or it is superseded |
  | worker, after `attach`, no answer| the verdict            | resent: duplicate; another: already_attached     |
  | worker, silent but alive         | its successor's tree   | its verdict is stale_gen, whenever it comes      |
  | planner, after `supersede`       | gen+1, no verdict      | resent: stale_gen, for it names the old one;     |
  |                                  |                        | what came after it is not touched                |
  | server                           | what it answered       | everything above, after its restart              |

A step's tree and verdict are kept in the row of the run that it belongs to; so each operation names the run too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from bus.fences.fence import Fence, Result
from bus.types import Decision, Digest, RunId

__all__ = ["Workspace", "WorkspaceReason", "WorkspaceResult"]


class WorkspaceReason(StrEnum):
    """Why an operation was not applied."""

    SCHEMA = "schema"
    """An argument is missing or malformed, or the verdict's form is not one that the batch knows."""
    STALE_GEN = "stale_gen"
    """The step has another tree by now, or never had one."""
    TREE_HASH = "tree_hash"
    """The generation is right, the tree is not: what was tested is not what was sent out."""
    ALREADY_ATTACHED = "already_attached"
    """The tree has another verdict."""


@dataclass(frozen=True, slots=True)
class WorkspaceResult(Result[WorkspaceReason]):
    """The answer of a workspace operation."""

    gen: int | None = None
    """`supersede`: the generation of the tree that is there now."""


class Workspace(Fence[WorkspaceResult]):
    """The trees of one batch's steps, and the verdicts on them."""

    NAME: ClassVar[str] = "workspace"

    async def record(self, run: RunId, step: str, gen: int, tree_hash: Digest) -> WorkspaceResult:
        """Name the step's tree, under a larger generation than any before. A verdict on the old one is taken off."""
        return await self._ask("record", run=run, step=step, gen=gen, tree_hash=tree_hash)

    async def attach(
        self, run: RunId, step: str, gen: int, tree_hash: Digest, verdict: str, schema: str
    ) -> WorkspaceResult:
        """Give the tree its verdict. `tree_hash` is the one that was dispatched; `schema` names the verdict's form."""
        return await self._ask(
            "attach", run=run, step=step, gen=gen, tree_hash=tree_hash, verdict=verdict, schema=schema
        )

    async def supersede(self, run: RunId, step: str, gen: int, tree_hash: Digest) -> WorkspaceResult:
        """Put another tree in the place of generation `gen`'s, and of no other. Answers the new gen."""
        return await self._ask("supersede", run=run, step=step, gen=gen, tree_hash=tree_hash)

    async def send(self, op: str, args: Mapping[str, object]) -> Decision:
        """See `Fence`. A verdict's schema travels as `verdict_schema`: an envelope's own `schema` is its version."""
        named = {"verdict_schema" if name == "schema" else name: value for name, value in args.items()}
        return await super().send(op, named)

    @staticmethod
    def _result(decision: Decision) -> WorkspaceResult:
        return WorkspaceResult(
            decision.verb,
            WorkspaceReason(decision.reason) if decision.reason else None,
            gen=decision.answer.get("gen"),
        )
