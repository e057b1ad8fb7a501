"""The lines of an export, read by the checker's own reader.

What is no export at all, or a part of one, is wrong input and an error. What an export says, however impossible, is
evidence: it is counted against the properties of the file, and reading goes on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bus.checker.board import Board
from bus.checker.said import Said
from bus.errors import InputError

__all__ = ["Footer", "Header", "Lines"]

_MARK = b',"chain":"'
_TAIL = 64 + len(b'"}\n')
_VERBS = frozenset({"commit", "duplicate", "reject", "replay", "in_doubt", "compensate"})
_FIELDS = ("id", "fence", "op", "verb", "reason", "envelope", "args", "answer", "chain")
_NUMBERS = ("intended", "quorum", "bound", "max_in_flight", "reclaim_ms", "replay_budget")
_POLICY = (
    "intended", "quorum", "bins", "bound", "max_in_flight", "max_deliveries", "lease_ms", "reclaim_ms", "judge_policy",
    "replay_budget", "gate", "limits",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Header:
    """The first line."""

    batch: str
    plane: str
    suite: Mapping[str, Any]
    policy: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Footer:
    """The last line."""

    entries: int
    head: str
    snapshot: Mapping[str, Any] | None


class Lines:
    """Takes the lines in order."""

    def __init__(self, source: str, board: Board) -> None:
        """`source`: how errors name the file."""
        self._source = source
        self._whole = board.add("history.P1", "each line has the fields and arguments of its decision", "lines")
        self._chain = board.add("history.P2", "each line's chain is over the line and the chain before it", "lines")
        self._order = board.add("history.P3", "entries grow; parts of one are counted and share its envelope", "lines")
        self._own = board.add("history.P4", "each applied decision is of this batch and plane", "applied decisions")
        self._stated = board.add("history.P5", "the first line says what the batch was declared as", "declarations")
        self._ending = board.add("history.P6", "the last line counts the lines and names the last chain", "last lines")
        self.header: Header | None = None
        self.footer: Footer | None = None
        self.count = 0
        self.head = "0" * 64
        self._place = (-1, -1)
        self._last: Said | None = None

    def feed(self, raw: bytes) -> Said | None:
        """The next line; None for the first and the last one, and for one that cannot be read.

        Raises InputError for a file that is no export of this version.
        """
        if self.header is None:
            self.header = self._first(raw)
            return None
        if raw.startswith(b'{"entries":'):
            self._end(raw)
            return None
        self.count += 1
        self._check_chain(raw)
        said = self._read(raw)
        if said is not None:
            self._check_place(said)
            self._last = said
        return said

    def finish(self) -> None:
        """There are no more lines. Raises InputError when the closing one is missing."""
        if self.header is None or self.footer is None:
            raise InputError(
                f"is truncated: the file ends without its closing line, behind {self.count} whole entries",
                file=self._source,
                remedy="export it again",
            )

    def unfit(self, where: Said | str, problem: str) -> None:
        """A line, or what the lines lead to, that has not the form of its operation."""
        self._whole.see(False, where, "{}", problem)

    # --- the first and the last ----------------------------------------------------------------------------

    def _first(self, raw: bytes) -> Header:
        said = _object(raw)
        if said is None or said.get("format") != "evalbus-history":
            raise InputError("is no history of a batch", file=self._source, remedy="a file that `evalbus export` wrote")
        if said.get("version") != 1:
            raise InputError(f"is of version {json.dumps(said.get('version'))}; 1 is understood", file=self._source)
        batch, plane, suite, policy = (said.get(name) for name in ("batch", "plane", "suite", "policy"))
        fits = isinstance(batch, str) and isinstance(plane, str) and isinstance(suite, dict)
        if not fits or not isinstance(policy, dict) or not _is_policy(policy):
            raise InputError("does not state a batch in its first line", file=self._source, line=1)
        return Header(str(batch), str(plane), dict(suite or {}), policy)

    def _end(self, raw: bytes) -> None:
        said = _object(raw)
        if said is None and not raw.endswith(b"\n"):
            return  # cut off within it: `finish` says so
        if self.footer is not None or said is None or list(said) != ["entries", "head", "snapshot"]:
            self._ending.see(False, "the last line", "is no closing line, or the second one")
            return
        snapshot = said["snapshot"]
        is_snapshot = snapshot is None or isinstance(snapshot, dict)
        self._ending.see(
            said["entries"] == self.count and said["head"] == self.head and is_snapshot,
            "the last line",
            "counts {} entries and names {}; there are {}, up to {}",
            said["entries"],
            said["head"],
            self.count,
            self.head,
        )
        self.footer = Footer(self.count, self.head, snapshot if isinstance(snapshot, dict) else None)

    # --- a decision ----------------------------------------------------------------------------------------

    def _check_chain(self, raw: bytes) -> None:
        mark = len(raw) - _TAIL
        recorded = raw[mark:-3].decode("ascii", "replace")
        is_marked = raw[mark - len(_MARK) : mark] == _MARK
        link = hashlib.sha256(self.head.encode())
        link.update(raw[: mark - len(_MARK)])
        link.update(b"}")
        derived = link.hexdigest()
        self._chain.see(is_marked and recorded == derived, f"line {self.count + 1}", "the chain breaks here")
        self.head = recorded if is_marked else derived

    def _read(self, raw: bytes) -> Said | None:
        whole = _object(raw)
        if whole is None or tuple(whole) != _FIELDS:
            self._whole.see(False, f"line {self.count + 1}", "is no decision")
            return None
        named, fence, op, verb, reason, envelope, args, answer, _ = whole.values()
        try:
            entry, slash, part = named.partition("/")
            ms, _, n = entry.partition("-")
            place, number = (int(ms), int(n)), int(part) if slash else 0
            is_fit = verb in _VERBS and isinstance(fence, str) and isinstance(op, str)
        except (AttributeError, TypeError, ValueError):
            is_fit = False
        is_fit = is_fit and isinstance(envelope, dict) and isinstance(args, dict) and isinstance(answer, dict)
        if not self._whole.see(is_fit, f"line {self.count + 1}", "has a field of another kind than a decision's"):
            return None
        return Said(named, entry, number, place[0], fence, op, verb, reason, envelope, args, answer)

    def _check_place(self, said: Said) -> None:
        last = self._last
        if last is not None and said.entry == last.entry:
            follows = said.part == last.part + 1 and said.envelope == last.envelope
        else:
            ms, _, n = said.entry.partition("-")
            place = (int(ms), int(n))
            follows = place > self._place and said.part <= 1
            self._place = max(place, self._place)
        self._order.see(follows, said, "stands out of its place")
        header = self.header
        if said.verb == "commit" and header is not None:
            envelope = said.envelope
            is_own = envelope.get("batch") == header.batch and envelope.get("plane") == header.plane
            self._own.see(is_own, said, "names another batch or plane")

    def check_declaration(self, said: Said) -> None:
        """The entry by which the batch was declared."""
        header = self.header
        if header is None:
            return
        spec = json.loads(said.envelope["spec"])
        suite = {"name": spec["suite"], "digest": spec["suite_digest"]}
        is_same = all(spec[name] == header.policy[name] for name in _POLICY)
        is_own = spec["batch"] == header.batch and suite == header.suite
        self._stated.see(is_same and is_own, said, "declares another batch than the first line states")


def _is_policy(policy: Mapping[str, Any]) -> bool:
    """Whether it is one: the only part of a file that is outside its chain and cannot be done without."""
    if not all(name in policy for name in _POLICY) or not all(type(policy[name]) is int for name in _NUMBERS):
        return False
    limits, bins = policy["limits"], policy["bins"]
    if not isinstance(limits, dict) or not isinstance(bins, list) or not all(isinstance(one, str) for one in bins):
        return False
    texts = [limits.get("inverses", "{}"), limits.get("schemas", "[]")]
    kinds = [type(_parsed(text)) for text in texts]
    return kinds == [dict, list] and all(type(value) in (int, str) for value in limits.values())


def _parsed(text: object) -> object:
    try:
        said: object = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    return said


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        said = json.loads(raw.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None
