"""Secrets that this process knows, kept out of what it writes.

A key comes into a worker from its environment, and every endpoint is free to send it back: in an error's text, in an
answer. So whatever is written by a role (events, details of holes, log lines, what the suite's code prints) is searched
for the keys that this process has read. It is the last door and not the first: nothing of ours hands a key on.

There is one set for the process, as there is one standard output.
"""

from __future__ import annotations

import json
import sys
from typing import TextIO, cast

__all__ = ["forget", "guard_streams", "hide", "redacted"]

_SHORTEST = 8
"""Characters. What is shorter is a placeholder such as `none` or `EMPTY`, and stands in ordinary text."""

_SHOWN = "***"

_hidden: dict[str, tuple[str, ...]] = {}


def hide(secret: str) -> None:
    """Never let this text out again."""
    if len(secret) >= _SHORTEST:
        _hidden[secret] = (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1])


def forget() -> None:
    """Know no secret any more: for tests."""
    _hidden.clear()


def redacted(text: str) -> str:
    """The text, with `***` for every secret in it, also where it stands as JSON or Python would write it."""
    for forms in _hidden.values():
        for form in forms:
            text = text.replace(form, _SHOWN)
    return text


class _Guarded:
    """A text stream that lets no secret through. What is written in two pieces is two pieces, to it as well."""

    def __init__(self, stream: TextIO) -> None:
        self.guarded = stream

    def write(self, text: str) -> int:
        self.guarded.write(redacted(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self.guarded, name)


def guard_streams() -> None:
    """Search standard output and standard error, from here on: what the suite's own code prints goes there."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, _Guarded):
            setattr(sys, name, cast("TextIO", _Guarded(stream)))
