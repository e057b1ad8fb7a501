"""Fence 7: an append is a two-key compare on a hash chain.

What is looked at: who held each run when an event was accepted, and the chain, computed anew from the payloads. In the
pipeline each conversation of a run is a chain of its own, `<run>~<conversation>`; generations are the run's.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from bus.checker.board import Board
from bus.checker.said import Said
from bus.checker.setting import Fence, Setting

__all__ = ["EMPTY", "Transcript", "run_of"]

EMPTY = "0" * 64
_STALE = ("run_mismatch", "stale_gen", "lease_mismatch")


@dataclass(slots=True)
class _Chain:
    gen: int = 0
    live: str | None = None
    head: str = EMPTY
    length: int = 0
    sealed: bool = False
    intended: dict[int, str] = field(default_factory=dict)
    """Sequence number → digest, of intentions without their event."""


class Transcript(Fence):
    """See the module's text."""

    def __init__(self, board: Board, setting: Setting) -> None:
        """Nothing of it is declared."""
        super().__init__()
        self._floor = 0
        self._chains: dict[str, _Chain] = {}
        self._minted: dict[str, int] = {}
        self._granted: dict[str, str] = {}
        self._p1 = board.add("transcript.P1", "each accepted event's lease is its run's", "events accepted")
        self._p2 = board.add("transcript.P2", "each accepted event's generation was live", "events accepted")
        self._p3 = board.add(
            "transcript.P3", "each accepted event is the next, on the head before it", "events accepted"
        )
        self._p4 = board.add("transcript.P4", "what was refused as stale was stale", "refusals as stale")
        self._p5 = board.add("transcript.P5", "a run's generations grow, above every restart", "leases")
        self._p6 = board.add("transcript.P6", "a lease's id is granted once", "leases")
        self._p7 = board.add("transcript.P7", "who is granted a run is told its chain", "leases")
        self._p8 = board.add("transcript.P8", "nothing is appended to a sealed transcript", "events accepted")
        self._p9 = board.add(
            "transcript.P9", "an event stands where it was intended, and no other there", "events accepted"
        )
        self._p10 = board.add("transcript.P10", "each intention is a live holder's, of a free place", "intentions")
        self._p11 = board.add("transcript.P11", "a seal is a live holder's, of the whole chain, once", "seals")
        self._p12 = board.add("transcript.P12", "a lease is taken away by the generation that it has", "fences")
        self.on = {
            "lease": self._lease,
            "fence": self._fence,
            "append": self._append,
            "intend": self._intend,
            "seal": self._seal,
        }
        self.also = {f"{op} reject": self._refused for op in ("append", "intend", "seal")}

    def _at(self, said: Said) -> _Chain:
        return self._chains.setdefault(said.args["run"], _Chain())

    def _lease(self, said: Said) -> None:
        name, lease_id, gen = said.args["run"], said.args["lease_id"], said.answer["gen"]
        run, turns = run_of(name), "abandoned" in said.envelope and name not in self._chains
        at, last = self._at(said), self._minted.get(run, 0)
        # A conversation begins under the generation of its holder; a claim mints the next.
        grows = gen == last > self._floor if turns else gen > max(last, self._floor)
        self._p5.see(grows and not at.sealed, said, "generation {} behind {}", gen, max(last, self._floor))
        self._p6.see(lease_id not in self._granted, said, "{} was {}'s", lease_id, self._granted.get(lease_id))
        told = (said.answer["head"], said.answer["length"], list(said.answer["unresolved"]))
        self._p7.see(
            told == (at.head, at.length, sorted(at.intended)), said, "it has {} events, {}", at.length, at.head
        )
        self._granted[lease_id] = name
        self._minted[run] = max(last, gen)
        at.gen, at.live = gen, lease_id

    def _fence(self, said: Said) -> None:
        at = self._at(said)
        is_live = at.live is not None and at.gen == said.args["gen"] > self._floor
        self._p12.see(is_live, said, f"generation {at.gen} is live" if at.live else "none is live")
        at.live = None

    def _append(self, said: Said) -> None:
        at, args = self._at(said), said.args
        self._p1.see(self._granted.get(args["lease_id"]) == args["run"], said, "{} is another's", args["lease_id"])
        self._p2.see(self._is_live(at, said), said, "{} of generation {} is not live", args["lease_id"], args["gen"])
        made = (args["parent"] + args["payload"]).encode("utf-8", "surrogatepass")
        head = hashlib.sha256(made).hexdigest()
        is_next = args["parent"] == at.head and args["seq"] == at.length + 1 and said.answer["head"] == head
        self._p3.see(is_next, said, "behind {} events with the head {} comes {}", at.length, at.head, head)
        self._p8.see(not at.sealed, said, "it is sealed")
        intended = at.intended.pop(args["seq"], None)
        self._p9.see(args.get("intent") == intended, said, "intended was {}", intended)
        at.head, at.length = said.answer["head"], args["seq"]

    def _intend(self, said: Said) -> None:
        at, args = self._at(said), said.args
        is_free = args["seq"] > at.length and args["seq"] not in at.intended and args["parent"] == at.head
        self._p10.see(is_free and not at.sealed and self._is_live(at, said), said, "the place or its holder is another")
        at.intended[args["seq"]] = args["digest"]

    def _seal(self, said: Said) -> None:
        at = self._at(said)
        is_whole = said.args["head"] == at.head and not at.intended and not at.sealed
        self._p11.see(
            is_whole and self._is_live(at, said), said, "its head is {}, intended {}", at.head, len(at.intended)
        )
        at.sealed = True

    def _is_live(self, at: _Chain, said: Said) -> bool:
        gen: int = said.args["gen"]
        held: str = said.args["lease_id"]
        return at.live == held and at.gen == gen > self._floor

    def _refused(self, said: Said) -> None:
        if said.reason in _STALE and "lease_id" in said.args and "gen" in said.args:
            at = self._chains.get(said.args["run"])
            is_stale = at is None or not self._is_live(at, said)
            self._p4.see(is_stale, said, "{} was live", said.args["lease_id"])

    def void(self, floor: int) -> None:
        """Leases up to it are not live any more."""
        self._floor = max(self._floor, floor)


def run_of(chain: str) -> str:
    """The run that a conversation belongs to."""
    return chain.rpartition("~")[0] or chain
