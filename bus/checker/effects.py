"""What happened outside: the fences of one call held against each other, and against the endpoint's own books.

A history can say that a step committed once. Whether the world saw it once, only the world can say: so the endpoint's
books, where there are any, are the other side of these predicates. They are looked up by the key that a call carries on
the wire, `<plane>:<incarnation>:<intent>`, written here anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from bus.checker.board import Board
from bus.checker.checked import Books, Effects, Tokens
from bus.checker.indoubt import InDoubt
from bus.checker.ledger import Ledger
from bus.checker.outbox import Intent, Outbox
from bus.checker.said import Said

__all__ = ["Outside"]

_SAFE = "!#$&'*+-./=?@^_`|~"
_LONGEST = 200


class Outside:
    """See the module's text."""

    def __init__(self, board: Board, outbox: Outbox, indoubt: InDoubt) -> None:
        """The fences of calls."""
        self._outbox, self._indoubt = outbox, indoubt
        self._incarnation = ""
        self.effects = Effects(0, None)
        p = board.add
        self._p1 = p("effects.P1", "each outcome is in all fences of its call, in one step", "outcomes of calls")
        self._p2 = p("effects.P2", "a call that joined had ended, and joined as it ended", "results joined")
        self._p3 = p("effects.P3", "a committed call took effect in both of its fences", "committed calls")
        self._p4 = p("effects.P4", "each committed step has one external effect", "committed steps in the books")
        self._p5 = p(
            "effects.P5", "each compensated step's effect was undone, or never came", "compensated steps in the books"
        )
        self._p6 = p("effects.P6", "what the tool said it did not do has no effect", "failed steps in the books")
        self._p7 = p("effects.P7", "each external effect was licensed, and came once", "keys in the books")
        self._p8 = p("tokens.P1", "the endpoint billed what the ledger spent", "books of tokens")

    def take(self, parts: Sequence[Said]) -> None:
        """All parts of one entry; the fences have seen them."""
        if parts[0].fence == "run" and parts[0].op == "create" and parts[0].done:
            self._incarnation = str(parts[0].envelope.get("incarnation", ""))
        bound = {(said.fence, said.op) for said in parts if said.done}
        for said in parts:
            if not said.done or not said.part:
                continue
            if (said.fence, said.op) == ("outbox", "complete"):
                self._outcome(said, bound)
            elif (said.fence, said.op) == ("join", "result"):
                at = self._outbox.intents.get(said.args["attempt"])
                fits = at is not None and at.final and (at.state == "committed") == said.args["ok"]
                self._p2.see(fits, said, "the intent is {}, it joined as {}", at and at.state, said.args["ok"])

    def _outcome(self, said: Said, bound: set[tuple[str, str]]) -> None:
        at = self._outbox.intents.get(said.args["intent_id"])
        if at is None or at.sent_ms < 0:
            return  # it never left: there is nothing to bind
        is_written = ("plane", "write") in bound or not said.args["ok"]
        is_bound = ("indoubt", "bind") in bound or at.undoes is not None
        self._p1.see(is_written and is_bound and ("plane", "release") in bound, said, "a fence of it was left out")

    def end(self, plane: str, books: Books | None) -> None:
        """There are no more lines: what the steps came to outside."""
        decided: dict[str, str] = {}
        for ref, pair in self._indoubt.pairs.items():
            decided[ref.key] = "COMMIT" if "COMMIT" in (pair.outcome, decided.get(ref.key)) else pair.outcome
        own = [at for at in self._outbox.intents.values() if at.undoes is None]
        committed = [at for at in own if at.state == "committed"]
        for at in committed:
            self._p3.see(decided.get(at.id) == "COMMIT", at.id, "in doubt it is {}", decided.get(at.id))
        self.effects = Effects(len(committed), None)
        if books is None or books.effects is None:
            return
        keys = {at.id: self._wire_key(plane, at.id) for at in own}
        external = 0
        for at in own:
            if books.tools is None or at.tool in books.tools:
                external += self._look_up(at, keys[at.id], books.effects, books.undone or {})
        sent = [at.id for at in self._outbox.intents.values() if at.sent_ms >= 0]
        licensed = {self._wire_key(plane, name) for name in sent}
        for key, times in sorted(books.effects.items()):
            if key.startswith(f"{plane}:{self._incarnation}:") and times:
                self._p7.see(key in licensed and times == 1, key, "it came {} times", times)
        self.effects = Effects(len(committed), external)

    def _look_up(self, at: Intent, key: str, effects: Mapping[str, int], undone: Mapping[str, int]) -> int:
        times = effects.get(key, 0)
        if at.state == "committed":
            self._p4.see(
                times == 1 and not undone.get(key), at.id, "it came {} times, undone {}", times, undone.get(key, 0)
            )
            return times
        if at.state == "compensated":
            self._p5.see(times == 0 or (times == 1 and undone.get(key, 0) > 0), at.id, "it came {} times", times)
        elif at.state == "failed":
            self._p6.see(times == 0, at.id, "it came {} times", times)
        return 0

    def tokens(self, ledger: Ledger, books: Books | None) -> Tokens:
        """Both sides of the spend."""
        lab = None if books is None else books.tokens
        if lab is not None:
            self._p8.see(lab == ledger.spent, "the ledger", "{} are in the ledger, {} in the books", ledger.spent, lab)
        return Tokens(ledger.spent, ledger.durable, ledger.open, lab)

    def _wire_key(self, plane: str, intent: str) -> str:
        began = f"{plane}:{self._incarnation}:"
        key = began + quote(intent, safe=_SAFE)
        return key if len(key) <= _LONGEST else began + hashlib.sha256(intent.encode()).hexdigest()
