"""Fence 11: a bounded desk with generations.

What is looked at: every place at every desk (that of runs, and one for each endpoint), from `acquire` until it is given
back. P1 to P4 are the specification's own names.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bus.checker.board import Board
from bus.checker.said import Said
from bus.checker.setting import SLACK_MS, Fence, Setting

__all__ = ["RUNS", "Admission"]

RUNS = "runs"


@dataclass(slots=True)
class _Lease:
    desk: str
    step: str
    gen: int
    state: str = "live"
    """`live`, `expired` or `freed`."""
    expired_ms: int = 0


@dataclass(slots=True)
class _Desk:
    bound: int
    in_flight: int = 0
    generation: int = 0
    live: dict[str, str] = field(default_factory=dict)
    """Step → its live lease."""
    committed: set[str] = field(default_factory=set)


class Admission(Fence):
    """See the module's text."""

    def __init__(self, board: Board, setting: Setting) -> None:
        """Bounds are declared: those of an endpoint's desk among the limits."""
        super().__init__()
        self._reclaim_ms: int = setting.policy["reclaim_ms"]
        self._timed = setting.timed
        self._setting = setting
        self._desks: dict[str, _Desk] = {}
        self._leases: dict[str, _Lease] = {}
        self._p1 = board.add("admission.P1", "0 <= in flight <= bound, at each desk at each point", "changes of desks")
        self._p2 = board.add("admission.P2", "a step is committed at most once", "commits")
        self._p3 = board.add("admission.P3", "each commit's lease was live, of its generation", "commits")
        self._p4 = board.add("admission.P4", "no second request beside a live one", "places taken")
        self._p5 = board.add("admission.P5", "a desk's generations grow", "generations")
        self._p6 = board.add(
            "admission.P6", "a place is taken under a new id, for a step not committed", "places taken"
        )
        self._p7 = board.add("admission.P7", "a place is given back once", "places given back")
        self._p8 = board.add("admission.P8", "only what is live expires", "expiries")
        self._p9 = board.add("admission.P9", "a place is taken back when its request is over", "places reclaimed")
        self._p10 = board.add(
            "admission.P10", "at the close no place of a run is taken, and none is live", "places taken"
        )
        self._p11 = board.add(
            "admission.P11", "who was refused had no place, or no free one", "refusals of places and commits"
        )
        self.on = {
            "acquire": self._acquire,
            "expire": self._expire,
            "apply": self._apply,
            "release": self._release,
            "reclaim": self._reclaim,
        }
        self.also = {"acquire reject": self._refused, "apply reject": self._refused}

    def _desk(self, name: str) -> _Desk:
        if name not in self._desks:
            bound = self._setting.policy["bound"] if name == RUNS else self._setting.limit(f"{name}_slots", 0)
            self._desks[name] = _Desk(bound)
        return self._desks[name]

    def _acquire(self, said: Said) -> None:
        step, name, gen = said.args["step"], said.args["lease"], said.answer["gen"]
        of = str(said.envelope.get("desk", RUNS))
        desk = self._desk(of)
        desk.in_flight += 1
        self._count(said, desk)
        self._grow(said, desk, gen)
        self._p4.see(step not in desk.live, said, "{} has {}", step, desk.live.get(step))
        self._p6.see(name not in self._leases and step not in desk.committed, said, "{} for {}", name, step)
        self._leases[name] = _Lease(of, step, gen)
        desk.live[step] = name

    def _count(self, said: Said, desk: _Desk) -> None:
        self._p1.see(0 <= desk.in_flight <= desk.bound, said, "{} of {} places are taken", desk.in_flight, desk.bound)

    def _grow(self, said: Said, desk: _Desk, gen: int) -> None:
        self._p5.see(gen > desk.generation, said, "generation {} behind {}", gen, desk.generation)
        desk.generation = gen

    def _expire(self, said: Said) -> None:
        at = self._leases.get(said.args["lease"])
        if not self._p8.see(at is not None and at.state == "live", said, "it is {}", at and at.state) or at is None:
            return
        desk = self._desk(at.desk)
        self._grow(said, desk, said.answer["gen"])
        at.state, at.expired_ms = "expired", said.ms
        desk.live.pop(at.step, None)

    def _apply(self, said: Said) -> None:
        at = self._leases.get(said.args["lease"])
        is_live = at is not None and at.state == "live" and at.gen == said.args["gen"]
        self._p3.see(is_live, said, "it is {}, of generation {}", at and at.state, at and at.gen)
        if at is not None:
            desk = self._desk(at.desk)
            self._p2.see(at.step not in desk.committed, said, "{} was committed before", at.step)
            desk.committed.add(at.step)

    def _release(self, said: Said) -> None:
        at = self._leases.get(said.args["lease"])
        self._free(said, at, at is not None and at.state != "freed")

    def _reclaim(self, said: Said) -> None:
        at = self._leases.get(said.args["lease"])
        if at is not None and (self._timed or said.args["cancelled"]):
            is_over = said.args["cancelled"] or said.ms >= at.expired_ms + self._reclaim_ms - SLACK_MS
            self._p9.see(is_over, said, "it expired {} ms before", said.ms - at.expired_ms)
        self._free(said, at, at is not None and at.state == "expired")

    def _free(self, said: Said, at: _Lease | None, is_due: bool) -> None:
        self._p7.see(is_due, said, "it is {}", at and at.state)
        if at is None:
            return
        desk = self._desk(at.desk)
        desk.in_flight -= 1
        self._count(said, desk)
        if desk.live.get(at.step) == said.args["lease"]:
            del desk.live[at.step]
        at.state = "freed"

    def _refused(self, said: Said) -> None:
        if said.reason == "bound_full":
            desk = self._desk(str(said.envelope.get("desk", RUNS)))
            self._p11.see(desk.in_flight >= desk.bound, said, "{} of {} places are taken", desk.in_flight, desk.bound)
        elif said.reason == "stale_gen":
            at = self._leases.get(said.args["lease"])
            is_stale = at is None or at.state != "live" or at.gen != said.args["gen"]
            self._p11.see(is_stale, said, "{} was live", said.args["lease"])

    def end(self) -> None:
        """An endpoint's place may wait for its sweep behind the close; a run's is given back with the run."""
        for name, at in self._leases.items():
            left = at.state == "freed" or (at.state == "expired" and at.desk != RUNS)
            self._p10.see(left, name, "the place of {} is {}", at.step, at.state)
