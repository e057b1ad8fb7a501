"""Fence 1: a shadow run must not write live.

What is looked at: every admission, write, undo and release that was applied, by the plane that the admission recorded
and never by what the caller says; and that who was refused as crossed did cross.
"""

from __future__ import annotations

from dataclasses import dataclass

from bus.checker.board import Board
from bus.checker.said import Said
from bus.checker.setting import Fence, Setting

__all__ = ["Plane"]


@dataclass(slots=True)
class _Admission:
    key: str
    plane: str
    released: bool = False


class Plane(Fence):
    """See the module's text."""

    def __init__(self, board: Board, setting: Setting) -> None:
        """`capacity` bounds the shadow plane only."""
        super().__init__()
        self._capacity = setting.limit("capacity", setting.policy["bound"])
        self._known: dict[str, _Admission] = {}
        self._in_flight: dict[str, str] = {}
        self._shadow = 0
        self._written: set[str] = set()
        self._undone: set[str] = set()
        self._p1 = board.add("plane.P1", "each write is on the plane that admitted it", "writes")
        self._p2 = board.add("plane.P2", "no key is written twice", "writes")
        self._p3 = board.add("plane.P3", "each write is of the key that was admitted, before its release", "writes")
        self._p4 = board.add("plane.P4", "shadow admissions stay within the capacity", "shadow admissions")
        self._p5 = board.add("plane.P5", "each undo is of a written key, on its own plane, once", "undos")
        self._p6 = board.add("plane.P6", "what was refused as crossed did cross", "refusals as crossed")
        self._p7 = board.add("plane.P7", "an admission is its key's alone and on its key's plane", "admissions")
        self._p8 = board.add("plane.P8", "an admission is released once", "releases")
        self._p9 = board.add("plane.P9", "at the close every admission was released", "admissions")
        self.on = {"admit": self._admit, "write": self._write, "undo": self._undo, "release": self._release}
        self.also = {f"{op} reject": self._refused for op in ("admit", "write", "undo")}

    def _admit(self, said: Said) -> None:
        key, plane, name = said.args["key"], said.args["plane"], said.args["admission"]
        is_free = name not in self._known and key not in self._in_flight and key not in self._written
        self._p7.see(is_free and _plane_of(key) == plane, said, "{} was admitted to {} as {}", key, plane, name)
        self._known[name] = _Admission(key, plane)
        self._in_flight[key] = name
        if plane == "shadow":
            self._shadow += 1
            self._p4.see(self._shadow <= self._capacity, said, "{} in flight", self._shadow)

    def _write(self, said: Said) -> None:
        key, at = said.args["key"], self._known.get(said.args["admission"])
        is_home = at is not None and _plane_of(key) == at.plane == said.args["plane"]
        self._p1.see(is_home, said, "{} was written by an admission of {}", key, at and at.plane)
        self._p2.see(key not in self._written, said, "{} was written before", key)
        self._p3.see(at is not None and at.key == key and not at.released, said, "{} is not what was admitted", key)
        self._written.add(key)

    def _undo(self, said: Said) -> None:
        key, at = said.args["key"], self._known.get(said.args["admission"])
        is_home = at is not None and at.key == key and _plane_of(key) == at.plane == said.args["plane"]
        is_due = key in self._written and key not in self._undone
        self._p5.see(is_home and is_due, said, "the undo of {} was queued", key)
        self._undone.add(key)

    def _release(self, said: Said) -> None:
        at = self._known.get(said.args["admission"])
        if not self._p8.see(at is not None and not at.released, said, "it was not in flight") or at is None:
            return
        at.released = True
        if self._in_flight.get(at.key) == said.args["admission"]:
            del self._in_flight[at.key]
        self._shadow -= at.plane == "shadow"

    def _refused(self, said: Said) -> None:
        if said.reason not in ("plane_key", "plane_header"):
            return
        at = self._known.get(said.args["admission"])
        recorded = said.args["plane"] if said.op == "admit" or at is None else at.plane
        compared = _plane_of(said.args["key"]) if said.reason == "plane_key" else said.args["plane"]
        self._p6.see(compared != recorded, said, "{} is on {}", said.args["key"], recorded)

    def end(self) -> None:
        """Capacity that is never given back closes the shadow plane."""
        for name, at in self._known.items():
            self._p9.see(at.released, name, "{} is still in flight", at.key)


def _plane_of(key: str) -> str:
    return key.partition(":")[0]
