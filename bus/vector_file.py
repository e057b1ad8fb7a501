"""The file of a conformance vector: a JSON object, read strictly.

A vector is a fence's configuration, operations in order, what is expected of each answer, and fields of the
final state. It is data from outside: a slip in it (a misspelt field, an operation that does not exist) would
quietly check nothing, so a file with one is refused before anything is played. Only the values of arguments
are left alone: they may be malformed on purpose.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bus.contract import CONTRACT, PROTOCOLS, FenceContract, Kind, OpContract
from bus.errors import InputError
from bus.models.model import fits
from bus.nearest import nearest
from bus.types import MAX_INT, Verb

__all__ = ["CLOCK", "Vector", "VectorOp", "load_vector"]

CLOCK = "clock"
"""The one step that is no operation: it moves the server's time and has no answer."""
VERBS = [verb.value for verb in Verb]
MAX_BYTES = 8 * 2**20
"""A vector is a page or two; what is larger is some other file, named by mistake."""
MAX_DEPTH = 64
"""Of lists and objects in one another: far beyond any state, and a bound for the recursion that walks them."""


@dataclass(frozen=True, slots=True)
class VectorOp:
    """One step. `keep` names its answer for later references; `expect` holds the fields to compare."""

    op: str
    args: Mapping[str, object]
    keep: str | None = None
    expect: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector that was found valid."""

    path: Path
    protocol: str
    name: str
    config: Mapping[str, object]
    ops: tuple[VectorOp, ...]
    final: Mapping[str, object]
    note: str = ""


def load_vector(path: Path | str) -> Vector:
    """Read a vector and check all of it but the arguments' values, which may be malformed on purpose.

    Raises `InputError` for a file that cannot be read, is not JSON (with the line), names a protocol,
    operation, argument or field that does not exist, or refers to an answer that was not kept before.
    """
    path = Path(path)
    return _Loader(path).vector(_read_json(path))


def _read_json(path: Path) -> object:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from error
    except ValueError as error:  # a path with a NUL in it
        raise InputError(f"cannot be read: {error}", file=repr(str(path))) from error
    if len(data) > MAX_BYTES:
        raise InputError(f"is larger than {MAX_BYTES >> 20} MB: not a vector", file=path)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError("is not UTF-8", file=path, line=line) from error
    try:
        value: object = json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg}", file=path, line=error.lineno) from error
    except RecursionError as error:
        raise InputError("not a vector: nested too deeply", file=path) from error
    except ValueError as error:  # ours, or a number with more digits than Python reads
        raise InputError(f"not JSON: {error}", file=path) from error
    if not _shallower(value, MAX_DEPTH):
        raise InputError("not a vector: nested too deeply", file=path)
    return value


def _shallower(value: object, levels: int) -> bool:
    if not isinstance(value, list | dict):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(_shallower(item, levels - 1) for item in inner)


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = next(key for key, times in counts.items() if times > 1)
        raise ValueError(f"{twice!r} stands twice in one object")
    return value


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is not a JSON number")


class _Loader:
    """Checks one file. Every problem is one line that names the place in it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: dict[str, OpContract] = {}

    def vector(self, data: object) -> Vector:
        top = self._object(data, "the vector")
        self._names(top, ("protocol", "name", "note", "config", "ops", "final"), "the vector", "field")
        for name in ("protocol", "name", "config", "ops", "final"):
            if name not in top:
                raise self._bad(f"{name!r} is missing")
        fence = self._fence(self._text(top["protocol"], "'protocol'"))
        config = self._config(fence, self._object(top["config"], "'config'"))
        steps = top["ops"]
        if not isinstance(steps, list):
            raise self._bad("'ops' must be a list")
        ops = tuple(self._step(fence, number, step) for number, step in enumerate(steps, 1))
        final = self._object(top["final"], "'final'")
        self._names(final, fence.final, "final", "field")
        self._references(final, "final")
        note = top.get("note", "")
        if not isinstance(note, str):
            raise self._bad("'note' must be text")
        return Vector(self._path, fence.name, self._text(top["name"], "'name'"), config, ops, final, note)

    def _fence(self, name: str) -> FenceContract:
        if name in CONTRACT:
            return CONTRACT[name]
        if name in PROTOCOLS:
            raise self._bad(f"protocol {name!r} is not built yet")
        raise self._bad(f"protocol {name!r} is unknown{_meant(name, PROTOCOLS)}")

    def _config(self, fence: FenceContract, config: dict[str, object]) -> dict[str, object]:
        self._names(config, [arg.name for arg in fence.config], "config", "field")
        for arg in fence.config:
            if arg.name not in config:
                raise self._bad(f"config: {arg.name!r} is missing")
            if not fits("|".join(arg.choices) or arg.kind.value, config[arg.name]):
                raise self._bad(f"config: {arg.name!r} must be {'|'.join(arg.choices) or arg.kind.value}")
        return config

    def _step(self, fence: FenceContract, number: int, data: object) -> VectorOp:
        place = f"op {number}"
        step = self._object(data, place)
        self._names(step, ("op", "args", "as", "expect"), place, "field")
        for name in ("op", "args"):
            if name not in step:
                raise self._bad(f"{place}: {name!r} is missing")
        name = self._text(step["op"], f"{place}: 'op'")
        place = f"{place} {name}"
        args = self._object(step["args"], f"{place}: 'args'")
        expect = self._object(step.get("expect", {}), f"{place}: 'expect'")
        keep = step.get("as")
        if name == CLOCK:
            return self._clock(place, args, keep, expect)
        op = fence.ops.get(name)
        if op is None:
            known = [*fence.ops, CLOCK]
            raise self._bad(f"{place}: {fence.name!r} has no such operation{_meant(name, known)}")
        self._names(args, [arg.name for arg in op.args if arg.kind is not Kind.DRAWN], place, "argument")
        self._references(args, place)
        self._expected(fence, expect, place)
        if keep is not None:
            keep = self._text(keep, f"{place}: 'as'")
            self._kept[keep] = op
        return VectorOp(name, args, keep, expect)

    def _clock(self, place: str, args: dict[str, object], keep: object, expect: dict[str, object]) -> VectorOp:
        self._names(args, ("advance_ms",), place, "argument")
        if not fits("int", args.get("advance_ms")):
            raise self._bad(f"{place}: 'advance_ms' must be a whole number from 0 to {MAX_INT}")
        if keep is not None or expect:
            raise self._bad(f"{place}: the clock has no answer to keep or to expect")
        return VectorOp(CLOCK, args)

    def _expected(self, fence: FenceContract, expect: dict[str, object], place: str) -> None:
        """Any answer field of the fence may be named: that it is absent can be expected too."""
        known = {"verb", "reason"}.union(*(op.answers for op in fence.ops.values()))
        self._names(expect, known, f"{place}: expect", "field")
        self._references(expect, place)
        verb = expect.get("verb", Verb.COMMIT.value)
        if verb not in VERBS and not str(verb).startswith("$"):
            raise self._bad(f"{place}: expect: {verb!r} is no verb{_meant(str(verb), VERBS)}")

    def _references(self, value: object, place: str) -> None:
        """Each `$name.field` must name an answer kept earlier, and a field that such an answer may have."""
        if isinstance(value, dict):
            for item in value.values():
                self._references(item, place)
        elif isinstance(value, list):
            for item in value:
                self._references(item, place)
        elif isinstance(value, str) and value.startswith("$"):
            name, dot, wanted = value[1:].rpartition(".")
            if not dot:
                raise self._bad(f"{place}: {value!r} is no reference; one is written '$name.field'")
            if name not in self._kept:
                raise self._bad(f"{place}: {value!r}: no answer is kept as {name!r} before")
            fields = ("verb", "reason", *self._kept[name].answers)
            if wanted not in fields:
                raise self._bad(f"{place}: {value!r}: answers there have no such field{_meant(wanted, fields)}")

    def _names(self, given: Iterable[str], known: Iterable[str], place: str, noun: str) -> None:
        known = list(known)
        for name in given:
            if name not in known:
                raise self._bad(f"{place}: {noun} {name!r} is unknown{_meant(name, known)}")

    def _object(self, value: object, what: str) -> dict[str, object]:
        if not isinstance(value, dict):
            raise self._bad(f"{what} must be an object")
        return value

    def _text(self, value: object, what: str) -> str:
        if not isinstance(value, str) or not value:
            raise self._bad(f"{what} must be text that is not empty")
        return value

    def _bad(self, problem: str) -> InputError:
        return InputError(problem, file=self._path)


def _meant(name: str, known: Sequence[str]) -> str:
    near = nearest(name, known)
    return f"; did you mean {near!r}?" if near else ""
