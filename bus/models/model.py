"""What the reference models share: answers, the schema of arguments, the one entrance that counts refusals.

A reference model is a fence without a server: a state, and for each operation the list of conditions that
the contract names, in its order; the first that holds answers. It is pure. Nothing is read from outside:
random ids come with the call or from `draw`, time is `now_ms`; so the same calls always give the same answers
and the same state. Models import nothing of the rest of the project: what is compared with the server must
not share its mistakes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import ClassVar

__all__ = ["Answer", "Model", "Verb", "commit", "compensate", "duplicate", "fits", "in_doubt", "reject", "replay"]

MAX_INT = 2**53 - 1


class Verb(StrEnum):
    """What an operation decided; the words of the contract."""

    COMMIT = "commit"
    DUPLICATE = "duplicate"
    REJECT = "reject"
    REPLAY = "replay"
    IN_DOUBT = "in_doubt"
    COMPENSATE = "compensate"


@dataclass(frozen=True, slots=True)
class Answer:
    """A verb, its reason where it needs one, and the fields that the contract names for this answer."""

    verb: Verb
    reason: str | None = None
    fields: Mapping[str, object] = field(default_factory=dict)

    @property
    def refused(self) -> bool:
        """True for what the refusal counts count."""
        return self.verb in (Verb.REJECT, Verb.REPLAY)

    def as_dict(self) -> dict[str, object]:
        """`{"verb": …, "reason": … or None, **fields}`, in plain JSON types."""
        return {"verb": self.verb.value, "reason": self.reason, **self.fields}


def commit(**fields: object) -> Answer:
    """Applied now."""
    return Answer(Verb.COMMIT, None, fields)


def duplicate(**fields: object) -> Answer:
    """The very same operation was applied before."""
    return Answer(Verb.DUPLICATE, None, fields)


def reject(reason: str, **fields: object) -> Answer:
    """Refused for good."""
    return Answer(Verb.REJECT, reason, fields)


def replay(reason: str, **fields: object) -> Answer:
    """Refused, but the caller may try again under a fresh identity."""
    return Answer(Verb.REPLAY, reason, fields)


def in_doubt(reason: str, **fields: object) -> Answer:
    """Not decidable yet."""
    return Answer(Verb.IN_DOUBT, reason, fields)


def compensate(**fields: object) -> Answer:
    """An effect may have escaped: run the named inverse."""
    return Answer(Verb.COMPENSATE, None, fields)


class Model:
    """One fence. Subclasses give the three tables, one method per operation, and `state`.

    `decide` is the entrance. A method called directly skips the schema and counts nothing: that is for
    whoever composes several fences into one step, and has checked the arguments already.
    """

    FENCE: ClassVar[str]
    CONFIG: ClassVar[str]
    """The constructor's arguments, as `name kind, name kind`."""
    OPS: ClassVar[Mapping[str, str]]
    """Operation → its arguments, likewise. Kinds: `str` `int` `int1` `bool` `obj` `strs`, `a|b` one of these
    texts; `str?` may be absent; `str else unbound` has a reason of its own; `drawn` is a random id, which the
    client draws, or else the model."""
    BEFORE_SCHEMA: ClassVar[frozenset[str]] = frozenset()
    """Reasons of an argument's own that are told before `schema` is."""

    def __init__(self, *, draw: Callable[[], str] | None = None) -> None:
        """`draw` gives a new random id each time; without it ids are counted, which is repeatable."""
        self.now_ms = 0
        self.refusals: dict[str, int] = {}
        self.drawn = 0
        self.any_text = False
        """Half of a surrogate pair passes for text. A script takes it for that, where a client sends such bytes."""
        self._draw = draw

    def decide(self, op: str, args: Mapping[str, object]) -> Answer:
        """Decide one operation. Arguments are checked before all else; refusals are counted by reason."""
        if op not in self.OPS:
            raise LookupError(f"{self.FENCE} has no operation {op!r}")
        reason = _malformed(_parse(self.OPS[op]), args, self.BEFORE_SCHEMA, any_text=self.any_text)
        answer = self._call(op, args) if reason is None else reject(reason)
        if answer.refused and answer.reason is not None:
            self.refusals[answer.reason] = self.refusals.get(answer.reason, 0) + 1
        return answer

    def elapse(self, ms: int) -> None:
        """Let time pass. It stands still otherwise."""
        self.now_ms += ms

    def dump(self) -> dict[str, object]:
        """The final state as the contract names it, in plain JSON types."""
        return {**self.state(), "refusals": dict(self.refusals)}

    def state(self) -> dict[str, object]:
        """The dump without the refusals."""
        raise NotImplementedError

    def _call(self, op: str, args: Mapping[str, object]) -> Answer:
        given = {name: value for name, value in args.items() if value is not None}
        for arg in _parse(self.OPS[op]):
            if arg.kind == "drawn" and arg.name not in given:
                given[arg.name] = self._new_id()
        method: Callable[..., Answer] = getattr(self, op)
        return method(**given)

    def _new_id(self) -> str:
        if self._draw is not None:
            return self._draw()
        self.drawn += 1
        return f"{self.drawn:032x}"


_TEXTS = ("str", "drawn")


@dataclass(frozen=True, slots=True)
class _Arg:
    name: str
    kind: str
    optional: bool
    otherwise: str

    def accepts(self, value: object, *, any_text: bool) -> bool:
        if value is None:
            return self.optional
        return fits(self.kind, value) or (any_text and self.kind in _TEXTS and isinstance(value, str) and value != "")


@cache
def _parse(text: str) -> tuple[_Arg, ...]:
    args = []
    for part in filter(None, text.split(", ")):
        name, _, rest = part.partition(" ")
        kind, _, otherwise = rest.partition(" else ")
        optional = kind.endswith("?") or kind == "drawn"
        args.append(_Arg(name, kind.removesuffix("?"), optional, otherwise or "schema"))
    return tuple(args)


def _malformed(
    args: tuple[_Arg, ...], given: Mapping[str, object], first: frozenset[str], *, any_text: bool
) -> str | None:
    """Why these arguments are refused unseen, or None. `schema` goes before a reason of an argument's own.

    But for those in `first`: they go before `schema`.
    """
    reasons = {arg.otherwise for arg in args if not arg.accepts(given.get(arg.name), any_text=any_text)}
    if foremost := reasons & first:
        return min(foremost)
    if "schema" in reasons or not given.keys() <= {arg.name for arg in args}:
        return "schema"
    return min(reasons, default=None)


def fits(kind: str, value: object) -> bool:
    """Whether a JSON value is of a kind. Nothing is converted: `True`, `1.0` and `"1"` are no whole numbers.

    A kind with `|` in it lists the texts that it allows.
    """
    match kind:
        case "str" | "drawn":
            return _is_text(value)
        case "int":
            return type(value) is int and 0 <= value <= MAX_INT
        case "int1":
            return type(value) is int and 1 <= value <= MAX_INT
        case "bool":
            return isinstance(value, bool)
        case "obj":
            return isinstance(value, dict) and _is_json(value)
        case "strs":
            return isinstance(value, list) and value != [] and all(_is_text(item) for item in value)
        case _:
            return value in kind.split("|")


def _is_json(value: object) -> bool:
    """Whether all that it is made of has a form in JSON, and that in UTF-8."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError):
        return False
    return True


def _is_text(value: object) -> bool:
    """Text is what has a UTF-8 form: half of a surrogate pair, which JSON can spell, has none."""
    if not isinstance(value, str) or value == "":
        return False
    return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)
