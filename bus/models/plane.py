"""Fence 1, plane: a shadow run must not write live.

Problem   a shadow run replays live work. Its worker stalls, or is handed a live key by a slip, and writes where a
          customer looks; or its timeout undoes what the live run did.
States    an admission: admit ──▶ held ── release ──▶ released
          a key:  free ── admit ──▶ in flight ── write ──▶ written ── undo ──▶ written, its inverse queued
                    ▲                   │
                    └───── release ─────┘ (written or not, nobody is in flight any more; a written one stays)
Invariants
  P1 a key is written by the admission that was granted for it, on its plane: no shadow run writes a live key.
  P2 a key is written once, and its row stays.
  P3 the shadow plane holds no more than its capacity, and in_flight counts what is not released.
  P4 every crossed write and undo is kept with its raw key, on the plane of its admission.
  P5 an inverse stands on the plane of its key, once, and only for a written key.
  P6 a key has one admission in flight at most.
  L1 every slot can be given back, and what was never written can then be admitted and written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from bus.models.model import Answer, Model, commit, duplicate, reject

__all__ = ["PLANES", "Admission", "Plane", "plane_of"]

PLANES = ("live", "shadow")


def plane_of(key: str) -> str:
    """What a key says of its plane: the text before its first colon."""
    return key.partition(":")[0]


def _is_key(key: str) -> bool:
    return re.fullmatch("[^:]+:[^:]+:[^:]+", key) is not None


@dataclass(slots=True)
class Admission:
    """The right to write one key on one plane."""

    key: str
    plane: str
    released: bool = False


class Plane(Model):
    """Both planes of one batch."""

    FENCE = "plane"
    CONFIG = "capacity int"
    OPS: ClassVar = {
        "rewrite": "run str, step str",
        "admit": "key str, plane str, admission drawn",
        "write": "admission str, key str, plane str, body str",
        "undo": "admission str, key str, plane str",
        "release": "admission str",
    }

    def __init__(self, *, capacity: int, draw: Callable[[], str] | None = None) -> None:
        """`capacity`: shadow admissions held at once, at most. The live plane has no bound here."""
        super().__init__(draw=draw)
        self.capacity = capacity
        self.admissions: dict[str, Admission] = {}
        self.in_flight: dict[str, str] = {}
        """Key → the admission that may write it now."""
        self.rows: dict[str, str] = {}
        """Key → body."""
        self.crossed: dict[str, list[str]] = {plane: [] for plane in PLANES}
        self.undone: dict[str, list[str]] = {plane: [] for plane in PLANES}

    def rewrite(self, *, run: str, step: str) -> Answer:
        if ":" in run or ":" in step:
            return reject("schema")

        return commit(key=f"shadow:{run}:{step}")

    def admit(self, *, key: str, plane: str, admission: str) -> Answer:
        if plane not in PLANES or not _is_key(key):
            return reject("schema")
        if known := self.admissions.get(admission):  # the id belongs to the command: this one was sent before
            same = (known.key, known.plane) == (key, plane)
            return duplicate(admission=admission) if same else reject("admission_reused")
        if plane_of(key) != plane:
            return reject("plane_key")
        if key in self.in_flight:
            return reject("duplicate_key", admission=self.in_flight[key])
        if key in self.rows:
            return reject("duplicate_key")
        if plane == "shadow" and self._shadow_in_flight() >= self.capacity:
            return reject("capacity")

        self.admissions[admission] = Admission(key, plane)
        self.in_flight[key] = admission
        return commit(admission=admission)

    def write(self, *, admission: str, key: str, plane: str, body: str) -> Answer:
        known = self.admissions.get(admission)
        if known is None:
            return reject("not_admitted")
        if reason := self._crosses(known, key, plane):
            return self._kept(known, key, reason)
        if known.released or not self._is_its_key(known, key):
            return reject("not_admitted")
        if key in self.rows:
            return reject("duplicate_key")

        self.rows[key] = body
        return commit()

    def undo(self, *, admission: str, key: str, plane: str) -> Answer:
        known = self.admissions.get(admission)
        if known is None:
            return reject("not_admitted")
        if reason := self._crosses(known, key, plane):
            return self._kept(known, key, reason)
        if not self._is_its_key(known, key):
            return reject("not_admitted")
        if key not in self.rows:
            return reject("not_written")
        if key in self.undone[known.plane]:
            return duplicate()

        self.undone[known.plane].append(key)
        return commit()

    def release(self, *, admission: str) -> Answer:
        known = self.admissions.get(admission)
        if known is None:
            return reject("not_admitted")
        if known.released:
            return duplicate()

        known.released = True
        del self.in_flight[known.key]
        return commit()

    def _crosses(self, known: Admission, key: str, plane: str) -> str | None:
        """Why this is another plane's business: by its key, or by its header."""
        if plane_of(key) != known.plane:
            return "plane_key"
        return "plane_header" if plane != known.plane else None

    def _is_its_key(self, known: Admission, key: str) -> bool:
        """Whether the admission was granted for this key."""
        return known.key == key

    def _kept(self, known: Admission, key: str, reason: str) -> Answer:
        self.crossed[known.plane].append(key)
        return reject(reason)

    def _shadow_in_flight(self) -> int:
        return sum(plane_of(key) == "shadow" for key in self.in_flight)

    def state(self) -> dict[str, object]:
        """See `Model.state`."""
        return {
            "rows": dict(self.rows),
            "live_keys": sorted(key for key in self.rows if plane_of(key) == "live"),
            "in_flight": self._shadow_in_flight(),
            "crossed": {plane: list(keys) for plane, keys in self.crossed.items()},
            "undo": {plane: list(keys) for plane, keys in self.undone.items()},
        }
