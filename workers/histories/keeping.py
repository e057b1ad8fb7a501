"""Which ended batches `evalbus prune` keeps: rules, as they are written, and what they say of a server's batches.

    30d          what ended less than so long ago
    last=20      the newest so many
    release-*    what is called so

A batch is kept if any rule keeps it. A batch ends when its last entry was recorded, by the server's clock, so machines
whose clocks differ agree.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bus.errors import InputError
from bus.types import BatchId
from workers.quantities import duration

__all__ = ["Ended", "Rule", "kept", "parse_rule"]

_AGE = re.compile(r"\d+(\.\d+)?\s*[A-Za-z]+", re.ASCII)
_LAST = re.compile(r"last\s*=\s*(\d{1,9})", re.ASCII)
_WILD = re.compile(r"[*?\[]")
_PATTERN = re.compile(r"[A-Za-z0-9._*?\[\]!-]+")


@dataclass(frozen=True, slots=True)
class Ended:
    """A batch that has ended; `at_ms` is when, on the server's clock, in ms since 1970."""

    name: BatchId
    at_ms: int


class Rule(Protocol):
    """What is kept."""

    def keeps(self, ended: Sequence[Ended], now_ms: int) -> set[BatchId]:
        """Of all batches that have ended, those that this rule keeps."""


@dataclass(frozen=True, slots=True)
class _Younger:
    seconds: float

    def keeps(self, ended: Sequence[Ended], now_ms: int) -> set[BatchId]:
        return {one.name for one in ended if now_ms - one.at_ms < 1_000 * self.seconds}


@dataclass(frozen=True, slots=True)
class _Last:
    count: int

    def keeps(self, ended: Sequence[Ended], now_ms: int) -> set[BatchId]:
        newest = sorted(ended, key=lambda one: (-one.at_ms, one.name))
        return {one.name for one in newest[: self.count]}


@dataclass(frozen=True, slots=True)
class _Called:
    pattern: str

    def keeps(self, ended: Sequence[Ended], now_ms: int) -> set[BatchId]:
        found = {one.name for one in ended if fnmatch.fnmatchcase(one.name, self.pattern)}
        if not found and not _WILD.search(self.pattern):
            raise InputError(
                f"--keep: no batch that has ended is called {self.pattern!r}", remedy="a pattern of names: 'release-*'"
            )
        return found


def parse_rule(written: str) -> Rule:
    """One `--keep`. Raises InputError: a rule that is misread keeps nothing, and what it was for is gone."""
    text = written.strip()
    if last := _LAST.fullmatch(text):
        return _Last(int(last[1]))
    if _AGE.fullmatch(text):
        try:
            return _Younger(duration(text))
        except ValueError as error:
            raise InputError(f"--keep: {error}", remedy="in days: 30d") from None
    if not _PATTERN.fullmatch(text) or text.isdigit():
        raise InputError(
            f"--keep: {written!r} is no rule", remedy="an age such as 30d, last=20, or a pattern of names: 'release-*'"
        )
    return _Called(text)


def kept(rules: Sequence[Rule], ended: Sequence[Ended], now_ms: int) -> set[BatchId]:
    """The batches that at least one of the rules keeps.

    Raises InputError for a plain name that none of them has: it would keep nothing, and was meant to.
    """
    return set[BatchId]().union(*(rule.keeps(ended, now_ms) for rule in rules))
