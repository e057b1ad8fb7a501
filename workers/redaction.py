"""Secrets that this process knows, kept out of what it writes.

A key comes into a worker from its environment, and every endpoint is free to send it back: in an error's text, in an
answer. So whatever is written by a role (events, details of holes, log lines, what the suite's code prints) is searched
for the keys that this process has read. It is the last door and not the first: nothing of ours hands a key on.

There is one set for the process, as there is one standard output.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Final, TextIO, cast
from urllib.parse import quote

from bus.errors import InputError
from bus.server_url import parse_url
from workers.secret_files import FILE, glance

__all__ = ["forget", "guard_streams", "hide", "hide_access", "hide_variable", "redacted"]

_SHORTEST = 8
"""Characters. What is shorter is a placeholder such as `none` or `EMPTY`, and stands in ordinary text."""

_SHORTEST_PASSWORD = 12
"""Characters, of a server's: one that is a common word would be taken out of honest answers, and verdicts be wrong."""

_SHOWN = "***"

_DEPTH = 3

_KNOWN: Final = frozenset(
    {"HOME", "PATH", "LANG", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "TMPDIR", "PWD", "PYTHONPATH"}
)
"""Variables whose values are no secrets, and stand in much that is written."""

_OF_THE_BUCKET: Final = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")

_hidden: dict[str, tuple[str, ...]] = {}


def hide(secret: str) -> None:
    """Never let this text out again; nor a line of it, where it has several: a program prints what it likes of it."""
    lines = [line.strip() for line in secret.splitlines()]
    for part in sorted({secret, *lines}, key=len, reverse=True):
        if len(part) >= _SHORTEST:
            as_json = (form for ascii_only in (True, False) for form in _in_json(part, ascii_only))
            _hidden[part] = tuple(dict.fromkeys((part, *as_json, repr(part)[1:-1])))


def _in_json(text: str, ascii_only: bool) -> Iterator[str]:
    """As a text in JSON, in JSON that is a text in JSON, and once more: a tool's answer in an event."""
    for _ in range(_DEPTH):
        text = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        yield text


def hide_variable(name: str) -> None:
    """Never let the value of a variable out, nor of the file that stands for it, if it is one that may be secret."""
    if name not in _KNOWN:
        hide(os.environ.get(name, ""))
        hide(glance(name) if name + FILE in os.environ else "")


def hide_access(url: str | None) -> None:
    """Never let out what a role is let in by: the passwords of its server's URL, and the keys of its bucket."""
    for variable in _OF_THE_BUCKET:
        hide_variable(variable)
    try:
        target = parse_url(url or "")
    except InputError:  # whoever opens it says so
        return
    for password in (target.password, target.sentinel.password if target.sentinel else None):
        if password is not None and len(password) >= _SHORTEST_PASSWORD:
            hide(password)
            hide(quote(password, safe=""))


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
