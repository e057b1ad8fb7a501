"""Fence 1, plane: a shadow run must not write live.

Problem   a shadow run replays live work beside it. Its worker stalls, or is handed a live key by a slip, and writes
          where a customer looks; or its timeout undoes what the live run did. A check of the caller's own prefix does
          not help: the caller is who is wrong.

States    of an admission, which is the right to write one key on one plane
              admit ──▶ held ── release ──▶ released
          of a key: free ── admit ──▶ in flight ── write ──▶ written ── undo ──▶ written, its inverse queued
                      ▲                   │
                      └───── release ─────┘   (a written key stays written, and is never admitted again)

Invariants
  P1 a key is written by the admission that was granted for it, on its plane: no shadow run writes a live key.
  P2 a key is written once, and its row stays.
  P3 the shadow plane holds no more than its capacity: what does not fit waits, and is never sent live.
  P4 every crossed write and undo is in the history with its raw key.
  P5 an inverse stands on the stream of its key's own plane, once, and only for a written key.
  P6 a key has one admission in flight at most.
  L1 every slot can be given back, and what was never written can then be admitted and written.

If a party dies
  | who, when                | what stands              | what follows                                          |
  |--------------------------|--------------------------|-------------------------------------------------------|
  | planner, `admit` sent    | perhaps a held admission | resent with the same id: duplicate; with another:     |
  |                          |                          | duplicate_key, which names the one in flight          |
  | worker, before `write`   | a held admission         | `release` by whoever ends the run; admitted anew      |
  | worker, after `write`    | the row                  | resent: duplicate_key; the slot comes with `release`  |
  | worker, stalled          | its admission, released  | its write is not_admitted, whatever key it brings     |
  | after `undo` was sent    | the inverse, queued once | resent: duplicate; the plane's own group runs it      |
  | server                   | what it answered         | everything above, after its restart                   |

The row of a key lies with the run that the key names. The plane is also the first thing in every key of the server,
so that an access list keeps a worker away which asks nobody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from bus.fences.fence import Fence, Result, is_text
from bus.types import Decision, Plane, RunId

__all__ = ["PlaneFence", "PlaneReason", "PlaneResult", "run_of"]

_KEY = re.compile(r"[^:]+:([^:]+):[^:]+")


class PlaneReason(StrEnum):
    """Why an operation was not applied."""

    SCHEMA = "schema"
    """An argument is missing or malformed: a key is `<plane>:<run>:<step>`, and only so."""
    ADMISSION_REUSED = "admission_reused"
    """This id was drawn for another key."""
    PLANE_KEY = "plane_key"
    """The key is another plane's."""
    PLANE_HEADER = "plane_header"
    """The key is right, and the header says another plane."""
    DUPLICATE_KEY = "duplicate_key"
    """The key is in flight, or written."""
    CAPACITY = "capacity"
    """The shadow plane is full: queue or shed."""
    NOT_ADMITTED = "not_admitted"
    """No such admission, or it was released, or it is another key's."""
    NOT_WRITTEN = "not_written"
    """There is nothing to undo."""


@dataclass(frozen=True, slots=True)
class PlaneResult(Result[PlaneReason]):
    """The answer of a plane operation."""

    key: str | None = None
    admission: str | None = None
    """`admit`: the one granted; or, with `duplicate_key`, the one in flight, so that a lost answer costs no slot."""


def run_of(key: object) -> RunId | None:
    """The run that a key names, in whose row it is kept; None for what is no key."""
    parts = _KEY.fullmatch(key) if is_text(key) else None
    return RunId(parts[1]) if parts else None


class PlaneFence(Fence[PlaneResult]):
    """The keys of one batch, on both planes."""

    NAME: ClassVar[str] = "plane"

    async def rewrite(self, run: RunId, step: str) -> PlaneResult:
        """Mint the shadow key of a step. Answers key. Nothing turns a live key into one."""
        return await self._ask("rewrite", run=run, step=step)

    async def admit(self, key: str, plane: Plane, admission: str | None = None) -> PlaneResult:
        """Let `key` be written on `plane`. Answers admission.

        The admission's id is drawn here; whoever must ask again after a lost answer draws it himself and gives
        the same one again.
        """
        return await self._ask("admit", key=key, plane=plane, admission=admission)

    async def write(self, admission: str, key: str, plane: Plane, body: str) -> PlaneResult:
        """Write the admitted key, once. `plane` is what the request's header says; `body` names what was written.

        Raises InputError for a body that does not fit into an envelope: what is large travels by its digest.
        """
        return await self._ask("write", admission=admission, key=key, plane=plane, body=body)

    async def undo(self, admission: str, key: str, plane: Plane) -> PlaneResult:
        """Queue the inverse of a written key on its own plane's stream, also after the release."""
        return await self._ask("undo", admission=admission, key=key, plane=plane)

    async def release(self, admission: str) -> PlaneResult:
        """End the admission; its slot comes back once."""
        return await self._ask("release", admission=admission)

    async def send(self, op: str, args: Mapping[str, object]) -> Decision:
        """See `Fence`. An `admit` without an admission draws one: the id belongs to the command."""
        if op == "admit" and args.get("admission") is None:
            args = {**args, "admission": self._channel.runtime.token()}
        if op in ("admit", "write", "undo"):
            # A plane that was left out stays left out: the batch's own plane must not stand in for it.
            args = {**args, "plane": args.get("plane"), "run": run_of(args.get("key"))}
        return await super().send(op, args)

    @staticmethod
    def _result(decision: Decision) -> PlaneResult:
        answer = decision.answer
        return PlaneResult(
            decision.verb,
            PlaneReason(decision.reason) if decision.reason else None,
            key=answer.get("key"),
            admission=answer.get("admission"),
        )
