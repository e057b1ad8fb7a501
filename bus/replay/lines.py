"""The lines of an export: read one at a time, and chained again as they are read.

The chain is computed over the bytes of the file, not over what they are parsed to: another spelling of the same values
is an edit too. The first and the last line are outside it. What they say is derived, or declared by an entry; so they
need only be spelt in the one way that there is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bus.archived import SEGMENT_FORMAT
from bus.errors import InputError
from bus.export_format import spelt
from bus.replay.telling import DiffersError, Told

__all__ = ["Footer", "Header", "Lines"]

FORMAT, VERSION = "evalbus-history", 1
_HEADER = ["format", "version", "batch", "plane", "suite", "policy"]
_BEGINS = b'{"format":"evalbus-history",'  # how this release spells it
_SHOWN = 60  # characters of a batch's name, in a file that may be anybody's
_FIRST_CHAIN = "0" * 64
_MARK = b',"chain":"'
_CHAINED = 64 + len(b'"}\n')  # what follows the mark
_FIELDS = ["id", "fence", "op", "verb", "reason", "envelope", "args", "answer", "chain"]
_decoded = json.JSONDecoder().raw_decode  # the line's own length says where it ends: nothing is searched for
_VERBS = frozenset({"commit", "duplicate", "reject", "replay", "in_doubt", "compensate"})


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

    line: int
    entries: int
    head: str
    snapshot: Mapping[str, Any] | None


class Lines:
    """Takes the lines in order; each answer is what the line says. The chain so far is `head`, its length `entries`."""

    def __init__(self, source: str) -> None:
        """`source`: how messages name the file."""
        self.source = source
        self.head = _FIRST_CHAIN
        self.entries = 0
        self._number = 0
        self._entry, self._part = "", 0
        self._at = (-1, -1)
        self._envelope: object = None
        self._ended = False

    def first(self, raw: bytes) -> Header:
        """Read the first line. Raises InputError for a file that is no export, or one of another release."""
        self._number = 1
        try:
            said = json.loads(raw)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict) or said.get("format") != FORMAT:
            if isinstance(said, dict) and said.get("format") == SEGMENT_FORMAT:
                whose = str(said.get("batch"))[:_SHOWN]
                raise InputError(
                    f"is one segment of the history of batch {whose!r}, which was archived while it ran",
                    file=self.source,
                    remedy="all of it: evalbus export BATCH FILE --archive DIR",
                )
            if raw.startswith(_BEGINS) and not raw.endswith(b"\n"):
                raise self._cut_off("the file ends within its first line")
            raise InputError(
                "is no history of a batch: its first line does not say so",
                file=self.source,
                remedy="a file that `evalbus export` wrote",
            )
        version = said.get("version")
        if version != VERSION or type(version) is not int:
            raise InputError(
                f"is of version {json.dumps(version)}; this release replays version {VERSION}",
                file=self.source,
                remedy="replay it with the release that wrote it",
            )
        batch, plane, suite, policy = (said.get(name) for name in ("batch", "plane", "suite", "policy"))
        if not (isinstance(batch, str) and isinstance(plane, str)):
            raise self._differs("its batch or its plane is missing")
        if not (isinstance(suite, dict) and isinstance(policy, dict)):
            raise self._differs("its suite or its policy is missing")
        if list(said) != _HEADER:
            raise self._differs(f"the first line does not have its fields: {', '.join(_HEADER)}")
        self._check_spelling(raw, said, "first")
        return Header(batch, plane, suite, policy)

    def next(self, raw: bytes) -> Told | Footer:
        """Read another line. Raises DiffersError when it is not the one that was written there.

        Raises InputError for a line that ends before its end: the file was cut off within it.
        """
        self._number += 1
        if self._ended:
            raise self._differs("stands behind the closing line")
        if raw.startswith(b'{"entries":'):
            self._ended = True
            return self._footer(raw)
        if not raw.endswith(b"\n"):
            raise self._cut_off("the file ends within a line")
        self._check_chain(raw)
        told = self._told(raw)
        self._check_place(told)
        self.entries += 1
        return told

    def end(self) -> None:
        """There are no more lines. Raises InputError when the closing one is not there."""
        if not self._ended:
            raise self._cut_off("the file ends without its closing line")

    # --- one entry -----------------------------------------------------------------------------------------

    def _check_chain(self, raw: bytes) -> None:
        mark = len(raw) - _CHAINED
        chain = raw[mark:-3].decode("ascii", "replace")
        if raw[mark - len(_MARK) : mark] != _MARK or raw[-3:] != b'"}\n':
            raise self._differs("is no entry of a history: it carries no chain")
        link = hashlib.sha256(self.head.encode())
        link.update(raw[: mark - len(_MARK)])
        link.update(b"}")
        derived = link.hexdigest()
        if chain != derived:
            raise self._differs(
                f"the chain breaks here: this line was edited, or one before it is missing, added or out of place; "
                f"recorded {chain}, derived {derived}"
            )
        self.head = derived

    def _told(self, raw: bytes) -> Told:
        try:
            text = raw.decode()
            said, end = _decoded(text)
        except (ValueError, RecursionError):
            raise self._differs("is no JSON") from None
        if end != len(text) - 1:
            raise self._differs("is more than one value")
        if not isinstance(said, dict) or list(said) != _FIELDS:
            raise self._differs(f"does not have the fields of an entry: {', '.join(_FIELDS)}")
        named, fence, op, verb, reason, envelope, args, answer, _ = said.values()
        texts = isinstance(named, str) and isinstance(fence, str) and isinstance(op, str) and isinstance(verb, str)
        maps = isinstance(envelope, dict) and isinstance(args, dict) and isinstance(answer, dict)
        if not texts or not maps or verb not in _VERBS or not (reason is None or isinstance(reason, str)):
            raise self._differs("has a field of another kind than an entry's")
        entry, slash, part = named.partition("/")
        if slash and not (part.isascii() and part.isdigit()):
            raise self._differs(f"{named!r} is no entry's id")
        number = int(part) if slash else 0
        return Told(self._number, named, entry, number, fence, op, verb, reason, envelope, args, answer)

    def _check_place(self, told: Told) -> None:
        """Entries grow, the parts of one are counted without a gap, and have the envelope that it came in."""
        if told.entry == self._entry:
            if told.part != self._part + 1:
                raise self._differs(f"entry {told.id} follows part {self._part} of the same entry")
            if told.envelope != self._envelope:
                raise self._differs(f"entry {told.id} has another envelope than the part before it")
        else:
            at = self._place(told.entry)
            if at <= self._at:
                raise self._differs(f"entry {told.id} follows entry {self._entry}, which is later")
            if told.part > 1:
                raise self._differs(f"entry {told.id} begins with part {told.part}")
            self._at = at
        self._entry, self._part, self._envelope = told.entry, told.part, told.envelope

    def _place(self, entry: str) -> tuple[int, int]:
        ms, _, n = entry.partition("-")
        if not (ms.isascii() and ms.isdigit() and n.isascii() and n.isdigit()):
            raise self._differs(f"{entry!r} is no entry's id")
        return int(ms), int(n)

    # --- the last line -------------------------------------------------------------------------------------

    def _footer(self, raw: bytes) -> Footer:
        try:
            said = json.loads(raw)
        except (ValueError, RecursionError):
            if not raw.endswith(b"\n"):
                raise self._cut_off("the file ends within its closing line") from None
            raise self._differs("the closing line is no JSON") from None
        if not isinstance(said, dict) or list(said) != ["entries", "head", "snapshot"]:
            raise self._differs("the closing line does not have its fields: entries, head, snapshot")
        self._check_spelling(raw, said, "closing")
        entries, head, snapshot = said["entries"], said["head"], said["snapshot"]
        if entries != self.entries:
            raise self._differs(f"the closing line counts {entries} entries, there are {self.entries}")
        if head != self.head:
            raise self._differs(f"the closing line names another head: recorded {head}, derived {self.head}")
        if type(entries) is not int:
            raise self._differs("the closing line's count is none")
        if snapshot is not None and not isinstance(snapshot, dict):
            raise self._differs("the closing line's snapshot is none")
        return Footer(self._number, self.entries, self.head, snapshot)

    def _check_spelling(self, raw: bytes, said: object, which: str) -> None:
        if not raw.endswith(b"\n"):
            raise self._cut_off(f"the file ends within its {which} line")
        if raw != spelt(said).encode() + b"\n":
            raise self._differs(f"the {which} line is spelt in another way than an export spells it")

    def _differs(self, problem: str) -> DiffersError:
        return DiffersError(self.source, self._number, problem)

    def _cut_off(self, how: str) -> InputError:
        return InputError(
            f"is truncated: {how}, behind {self.entries} whole entries",
            file=self.source,
            line=self._number,
            remedy="export it again",
        )
