"""Conformance vectors, played through anything that speaks the contract and compared field by field.

    vector = load_vector(path)                     InputError names the file and the place
    report = await play(vector, ModelPlayer())     report.difference is the first one, or None

The same vector is played through a reference model and through the scripts of a live server: two programs
that share no code must both meet every expectation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from bus.models import Model, build
from bus.vector_file import CLOCK, Vector, VectorOp, load_vector

__all__ = ["Difference", "ModelPlayer", "Player", "Report", "Vector", "VectorOp", "load_vector", "play"]


class Player(Protocol):
    """What a vector is played through: a model, or the scripts of a live server."""

    async def begin(self, protocol: str, config: Mapping[str, object]) -> None:
        """Start from an empty state."""

    async def apply(self, op: str, args: Mapping[str, object]) -> Mapping[str, object]:
        """Send one operation. Its answer as JSON types: `verb`, `reason` (None where it has none), fields."""

    async def advance(self, ms: int) -> None:
        """Move the time of the state by that much."""

    async def dump(self) -> Mapping[str, object]:
        """The final state as the contract names it."""

    async def end(self) -> None:
        """Give everything back. Called also after a failure, even of `begin`."""


class ModelPlayer:
    """Plays through a reference model. `mutant` plays the naive policy of that name instead."""

    def __init__(self, mutant: str | None = None) -> None:
        """A mutant's name is one of `bus.models.MUTANTS[protocol]`."""
        self._mutant = mutant
        self._model: Model | None = None

    async def begin(self, protocol: str, config: Mapping[str, object]) -> None:
        """See `Player`."""
        self._model = build(protocol, config, mutant=self._mutant)

    async def apply(self, op: str, args: Mapping[str, object]) -> Mapping[str, object]:
        """See `Player`."""
        return self._begun().decide(op, args).as_dict()

    async def advance(self, ms: int) -> None:
        """See `Player`."""
        self._begun().elapse(ms)

    async def dump(self) -> Mapping[str, object]:
        """See `Player`."""
        return self._begun().dump()

    async def end(self) -> None:
        """See `Player`."""
        self._model = None

    def _begun(self) -> Model:
        if self._model is None:
            raise RuntimeError("begin() comes first")
        return self._model


@dataclass(frozen=True, slots=True)
class Difference:
    """The first thing that was not as expected. `whole` is the whole answer, or the whole final state."""

    place: str
    problem: str
    whole: Mapping[str, object]

    def __str__(self) -> str:
        """`op 4 score: expected reason "x", got "y"; the whole answer: {…}`, on one line."""
        what = "state" if self.place == "final" else "answer"
        return f"{self.place}: {self.problem}; the whole {what}: {_show(self.whole)}"


@dataclass(frozen=True, slots=True)
class Report:
    """What came of one vector. `played` counts the steps up to the difference, or all of them."""

    vector: Vector
    played: int
    difference: Difference | None = None

    @property
    def passed(self) -> bool:
        """True when every expectation was met."""
        return self.difference is None


async def play(vector: Vector, player: Player) -> Report:
    """Play a vector from an empty state and stop at the first difference."""
    try:
        await player.begin(vector.protocol, vector.config)
        return await _play(vector, player)
    finally:
        await player.end()


async def _play(vector: Vector, player: Player) -> Report:
    kept: dict[str, Mapping[str, object]] = {}
    for number, step in enumerate(vector.ops, 1):
        place = f"op {number} {step.op}"
        try:
            args = _resolve_all(step.args, kept)
            expect = _resolve_all(step.expect, kept)
        except _DanglingError as dangling:
            return Report(vector, number, Difference(place, str(dangling), dangling.answer))
        if step.op == CLOCK:
            await player.advance(_whole(args["advance_ms"]))
            continue
        answer = await player.apply(step.op, args)
        if problem := _first_problem(expect, answer):
            return Report(vector, number, Difference(place, problem, answer))
        if step.keep is not None:
            kept[step.keep] = answer
    state = await player.dump()
    try:
        final = _resolve_all(vector.final, kept)
    except _DanglingError as dangling:
        return Report(vector, len(vector.ops), Difference("final", str(dangling), state))
    problem = _first_problem(final, state)
    difference = Difference("final", problem, state) if problem else None
    return Report(vector, len(vector.ops), difference)


class _DanglingError(LookupError):
    """A reference to a field that the answer lacks: most often because that operation was refused."""

    def __init__(self, text: str, answer: Mapping[str, object]) -> None:
        super().__init__(f"{_show(text)} names nothing: that answer has no such field")
        self.answer = answer


def _resolve_all(fields: Mapping[str, object], kept: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    return {name: _resolve(value, kept) for name, value in fields.items()}


def _resolve(value: object, kept: Mapping[str, Mapping[str, object]]) -> object:
    """Put answer fields in the place of `$name.field`, however deep."""
    if isinstance(value, str) and value.startswith("$"):
        name, _, wanted = value[1:].rpartition(".")
        if wanted not in kept[name]:
            raise _DanglingError(value, kept[name])
        return kept[name][wanted]
    if isinstance(value, list):
        return [_resolve(item, kept) for item in value]
    if isinstance(value, dict):
        return {name: _resolve(item, kept) for name, item in value.items()}
    return value


def _first_problem(expected: Mapping[str, object], got: Mapping[str, object]) -> str | None:
    for name, value in expected.items():
        if not _same(value, got.get(name)):
            found = _show(got[name]) if name in got else "nothing"
            return f"expected {name} {_show(value)}, got {found}"
    return None


def _same(expected: object, got: object) -> bool:
    """Equal as a whole and of the same type: `True` is not `1`, `1` is not `1.0`, `{}` is not `[]`."""
    if type(expected) is not type(got):
        return False
    if isinstance(expected, dict) and isinstance(got, dict):
        return expected.keys() == got.keys() and all(_same(item, got[name]) for name, item in expected.items())
    if isinstance(expected, list) and isinstance(got, list):
        return len(expected) == len(got) and all(map(_same, expected, got))
    return expected == got


def _show(value: object) -> str:
    """As JSON on one line. Text without a UTF-8 form is shown by its escapes, what is no JSON by its repr."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text.encode("utf-8", "backslashreplace").decode()


def _whole(value: object) -> int:
    """The loader has checked it."""
    if not isinstance(value, int):
        raise TypeError(f"not a whole number: {value!r}")
    return value
