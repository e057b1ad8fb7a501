"""The words in which the contract of a fence is written: operations, arguments, outcomes, answer fields, state.

`bus/contracts/<fence>.py` has one table each, `bus.contract.CONTRACT` has them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from bus.types import Verb

__all__ = ["PROTOCOLS", "Arg", "FenceContract", "Kind", "OpContract", "Outcome", "fence", "op"]

PROTOCOLS = (
    "plane",
    "outbox",
    "indoubt",
    "completion",
    "histogram",
    "judge",
    "transcript",
    "sandbox",
    "workspace",
    "ledger",
    "admission",
    "join",
)
"""All twelve by number, from 1; those in `CONTRACT` are built."""


class Kind(StrEnum):
    """What a value must be. Nothing is converted: `True`, `1.0` and `"1"` are no whole numbers."""

    STR = "str"
    """Text, not empty."""
    INT = "int"
    """A whole number from 0 to 2^53-1."""
    INT1 = "int1"
    """A whole number from 1 to 2^53-1."""
    BOOL = "bool"
    OBJ = "obj"
    """A JSON object."""
    STRS = "strs"
    """A list of at least one text, none empty."""
    CHOICE = "choice"
    """One of the texts in `Arg.choices`."""
    DRAWN = "drawn"
    """A random id that the client draws for one command and sends again with it. Vectors never name it."""


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument of an operation, or one field of a configuration."""

    name: str
    kind: Kind
    optional: bool = False
    """It may be absent or null."""
    choices: tuple[str, ...] = ()
    otherwise: str = "schema"
    """The reason of the refusal when it is missing or malformed."""

    def __str__(self) -> str:
        """As it is declared: `seq int1`, `intent str?`."""
        kind = "|".join(self.choices) or self.kind.value
        own_reason = "" if self.otherwise == "schema" else f" else {self.otherwise}"
        return f"{self.name} {kind}{'?' if self.optional else ''}{own_reason}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verb, with its reason where it has one."""

    verb: Verb
    reason: str | None = None

    def __str__(self) -> str:
        """`in_doubt dangling`."""
        return f"{self.verb.value} {self.reason}" if self.reason else self.verb.value


@dataclass(frozen=True, slots=True)
class OpContract:
    """One operation."""

    name: str
    args: tuple[Arg, ...]
    outcomes: tuple[Outcome, ...]
    """In the order of the checks; refusals of the schema come before all of them and are not listed."""
    answers: tuple[str, ...]
    """The fields that an answer may carry beside verb and reason."""


@dataclass(frozen=True, slots=True)
class FenceContract:
    """One protocol."""

    number: int
    name: str
    config: tuple[Arg, ...]
    ops: Mapping[str, OpContract]
    final: tuple[str, ...]
    """The fields of the state dump, `refusals` among them."""


def fence(name: str, *ops: OpContract, config: str, final: str) -> FenceContract:
    """A protocol's table; `config` and `final` as in `vectors/README`, in words."""
    number = PROTOCOLS.index(name) + 1
    by_name = MappingProxyType({op.name: op for op in ops})
    return FenceContract(number, name, _args(config), by_name, (*final.split(), "refusals"))


def op(name: str, args: str, outcomes: str, answers: str = "") -> OpContract:
    """One operation: `"run str, gen int"`, `"stale_gen, duplicate, commit"`, `"gen head"`."""
    return OpContract(name, _args(args), _outcomes(outcomes), tuple(answers.split()))


def _args(text: str) -> tuple[Arg, ...]:
    return tuple(_arg(part) for part in text.split(", ") if part)


def _arg(text: str) -> Arg:
    name, _, rest = text.partition(" ")
    kind, _, otherwise = rest.partition(" else ")
    choices = tuple(kind.split("|")) if "|" in kind else ()
    plain = Kind.CHOICE if choices else Kind(kind.removesuffix("?"))
    return Arg(name, plain, kind.endswith("?"), choices, otherwise or "schema")


def _outcomes(text: str) -> tuple[Outcome, ...]:
    """`stale_gen, duplicate, in_doubt dangling, commit`: a bare reason means `reject`."""
    return tuple(_outcome(part) for part in text.split(", "))


def _outcome(text: str) -> Outcome:
    verb, _, reason = text.partition(" ")
    if reason or verb in ("commit", "duplicate", "compensate"):
        return Outcome(Verb(verb), reason or None)
    return Outcome(Verb.REJECT, verb)
