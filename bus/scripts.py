"""The scripts: found, put together, named by content; `bus.calling` sends them.

A script file is `lua/<fence>/<op>.lua` or `lua/run/<step>.lua` (the operation that is itself called `fence` stands in
`do_fence.lua`, since `fence.lua` holds what the fence's operations share). Its header says what it is for and names
its KEYS, its ARGV and what it RETURNS; the header is read here and is the only place where positions are written
down, so callers pass keys and arguments by name. `--#include "<file>"` puts a shared piece in place, once.

Steps about one run come in crowds: a worker that drives sixty-four runs seals many at once. So such a script carries
any number of commands of its kind for one batch, each decided by itself (`lua/include/many.lua`). A call of a script
costs several times what one more command in it does. What stands above a line `--#each` is made once a call: tables
that never change, and `ahead`, which reads in one command what all of them will ask for.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from bus.shake import shake, strip
from bus.shorthand_lua import lua_writer

__all__ = ["Script", "all_scripts", "expand", "parse", "script"]

_INCLUDE = re.compile(r'^--#include "([a-z_/]+\.lua)"$', re.MULTILINE)
_HEADER = re.compile(r"--\[\[ (?P<name>[a-z_.]+): (?P<title>.*?)\]\]", re.DOTALL)
_SECTION = re.compile(r"^(WHY|KEYS|ARGV|RETURNS)\b", re.MULTILINE)
_NUMBERED = re.compile(r"(?:^|\s)(\d+|\d+…)\s+([a-z_]+)")
_SHEBANG = "#!lua\n"
_OF_A_RUN = ("run", "transcript")
"""Keys that are another one's for each command of a call; all others are the batch's."""

_SHORTHAND = "--#shorthand\n"  # where the writer of the short form is put in
_EACH = "--#each\n"
_BODY, _END = "--#body", "--#end"  # where a script's own text stands while the included functions are sorted out


@dataclass(frozen=True, slots=True)
class Script:
    """One script, ready to send. A name in `keys` or `argv` that ends in `…` takes any number of values."""

    name: str
    title: str
    keys: tuple[str, ...]
    argv: tuple[str, ...]
    returns: frozenset[str]
    """`commit`, `duplicate`, `reject stale_gen`, …: every answer that the header admits."""
    text: str
    sha: str
    own_keys: tuple[str, ...] = ()
    """The keys that each command has for itself, of a script that carries many; empty for any other."""
    shared_keys: tuple[str, ...] = ()
    """Those that all commands of one call have in common."""

    @property
    def recorded(self) -> bool:
        """Whether a call is a command, with an envelope and a record in a history. Those of `endpoint` only count."""
        return not self.name.startswith("endpoint.")


def _own(name: str, keys: Sequence[str]) -> tuple[str, ...]:
    if not name.startswith("run.") or "run" not in keys or any(key.endswith("…") for key in keys):
        return ()
    return tuple(key for key in keys if key in _OF_A_RUN)


def _root() -> Traversable:
    # For tests alone: a copy of the scripts with a check taken out, which chaos must notice. See docs/chaos.md.
    other = os.environ.get("EVALBUS_LUA")
    return Path(other) if other else files("lua")


def expand(text: str, read: Mapping[str, str] | None = None) -> str:
    """Put included files in place, each once, before what needs it.

    Raises ValueError on a cycle, a missing file, and a line that looks like an include and is none.

    `read` maps file names to texts; by default they are read from the package `lua`.
    """
    done: set[str] = set()

    def load(name: str) -> str:
        if read is not None:
            if name not in read:
                raise ValueError(f"no such include: {name}")
            return read[name]
        source = _root().joinpath(name)
        if not source.is_file():
            raise ValueError(f"no such include: {name}")
        return strip(source.read_text("utf-8"))

    def place(body: str, trail: tuple[str, ...]) -> str:
        def one(match: re.Match[str]) -> str:
            name = match.group(1)
            if name in trail:
                raise ValueError(f"include cycle: {' → '.join((*trail, name))}")
            if name in done:
                return ""
            piece = place(load(name), (*trail, name))
            done.add(name)
            return piece

        return _INCLUDE.sub(one, body)

    expanded = place(text, ())
    if left := re.search(r"^.*#include.*$", expanded, re.MULTILINE):
        raise ValueError(f"not an include: {left.group().strip()}")
    return expanded


def _section(header: str, name: str) -> str:
    marks = list(_SECTION.finditer(header))
    for mark, after in zip(marks, [*marks[1:], None], strict=True):
        if mark.group(1) == name:
            return header[mark.end() : after.start() if after else len(header)]
    return ""


def _names(section: str) -> tuple[str, ...]:
    found = []
    for position, (number, name) in enumerate(_NUMBERED.findall(section), start=1):
        if number.rstrip("…") != str(position):
            raise ValueError(f"position {number} of {name!r} should be {position}")
        found.append(name + ("…" if number.endswith("…") else ""))
    return tuple(found)


def _returns(section: str) -> frozenset[str]:
    answers: set[str] = set()
    for part in section.split("|"):
        words = re.findall(r"[a-z_]+|/", re.sub(r"<[^>]*>", "", part))
        if not words:
            continue
        verb, reasons = words[0], [word for word in words[1:] if word != "/"]
        answers.update(f"{verb} {reason}" for reason in reasons) if reasons else answers.add(verb)
    return frozenset(answers)


def parse(name: str, source: str, text: str) -> Script:
    """Read a script's header. Raises ValueError when the header does not say what it must."""
    header = _HEADER.search(source)
    if header is None or header.group("name") != name:
        raise ValueError(f"{name}: the header must begin with '--[[ {name}: '")
    body = header.group(0)
    try:
        keys, argv = _names(_section(body, "KEYS")), _names(_section(body, "ARGV"))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    returns = _returns(_section(body, "RETURNS").rstrip("]"))
    if not returns:
        raise ValueError(f"{name}: the header names no answer")
    own = _own(name, keys)
    return Script(
        own_keys=own,
        shared_keys=tuple(key for key in keys if key not in own),
        name=name,
        title=" ".join(header.group("title").split("\n")[0].split()),
        keys=keys,
        argv=argv,
        returns=returns,
        text=text,
        sha=hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(),
    )


@cache
def script(name: str) -> Script:
    """The script `<fence>.<op>` or `run.<step>`. Raises ValueError when there is none or its header is wrong."""
    folder, _, op = name.partition(".")
    source = _root().joinpath(folder, "do_fence.lua" if op == "fence" else f"{op}.lua")
    if not source.is_file():
        raise ValueError(f"no script {name}")
    text = source.read_text("utf-8")
    found = parse(name, text, "")
    whole = _complete(found, strip(text))
    return replace(found, text=whole, sha=hashlib.sha1(whole.encode(), usedforsecurity=False).hexdigest())


def _complete(target: Script, text: str) -> str:
    """What is sent: included functions first, then the script's own text as a function, which `many` calls."""
    start = max((match.end() for match in _INCLUDE.finditer(text)), default=0)
    own = [str(target.keys.index(name) + 1) for name in target.own_keys]
    once, _, each = text[start:].rpartition(_EACH)
    ahead = ", ahead" if f"\n{once}".find("\nlocal function ahead(") >= 0 else ""
    called = f"many(one, {{{', '.join(own)}}}{ahead})" if own else "many(one)"
    parts = [text[:start], '--#include "include/many.lua"', once, _BODY, each, _END, f"return {called}"]
    shaken = shake(expand("\n".join(parts)))
    body = shaken.replace(f"{_BODY}\n", "local function one()\n").replace(f"{_END}\n", "end\n")
    if _SHORTHAND in body:
        around = strip(_root().joinpath("include", "shorthand.lua").read_text("utf-8"))
        body = body.replace(_SHORTHAND, lua_writer(target.name, body, around))
    return f"{_SHEBANG}local KEYS, ARGV = KEYS, ARGV\n{body}"


@cache
def all_scripts(only: str | None = None) -> tuple[Script, ...]:
    """Every script of this release, by name; or those of one folder."""
    found = []
    for folder in sorted(_root().iterdir(), key=lambda entry: entry.name):
        if not folder.is_dir() or folder.name in ("include", "__pycache__") or only not in (None, folder.name):
            continue
        for source in sorted(folder.iterdir(), key=lambda entry: entry.name):
            if source.name.endswith(".lua") and source.name != "fence.lua":
                op = source.name.removesuffix(".lua").removeprefix("do_")
                found.append(script(f"{folder.name}.{op}"))
    return tuple(found)
