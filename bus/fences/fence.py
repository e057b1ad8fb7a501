"""What the typed operations of every fence share: one script call, from named arguments to a decision with types.

An operation is one script. Its header names its keys, its envelope carries its arguments, its reply is a decision.
`Channel` brings the three together; a fence's class gives them names and types, and `send` is the same without
types: what a vector, a replay or a test presents goes through it untouched, malformed or not, because it is the script
that refuses, and the history that shows what was refused.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Generic, TypeGuard, TypeVar

from bus.envelopes import encode
from bus.keys import RUNS_DESK, BatchKeys
from bus.link import Link
from bus.port import Runtime
from bus.scripts import script
from bus.types import Decision, Plane, RunId, Verb

__all__ = ["Channel", "Fence", "Result", "canonical", "is_text"]

R = TypeVar("R", bound=StrEnum)
T_co = TypeVar("T_co", covariant=True)

NOBODY = RunId("")
"""The row that a command without a readable run names. No run is called that; such a command is refused unread."""

NO_ARGV: Mapping[str, bytes] = {}


def canonical(value: object) -> bytes:
    """A value as JSON text that is the same for equal values: keys sorted, no blanks, the letters as they are.

    Empty for what is no JSON: a number that is none, a text without a UTF-8 form, however deep.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode()
    except (TypeError, ValueError):
        return b""


def is_text(value: object) -> TypeGuard[str]:
    """Text, not empty. Half of a surrogate pair, which JSON can spell, has no UTF-8 form and is no text."""
    if not isinstance(value, str) or not value:
        return False
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Channel:
    """Where a fence's operations go: a link to the server, a batch's keys, and a source of random ids."""

    link: Link
    keys: BatchKeys
    runtime: Runtime
    _of_the_batch: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    """The keys that all its commands name alike, once one has named any."""

    def _places(self) -> Mapping[str, str]:
        if not self._of_the_batch:
            keys = self.keys
            self._of_the_batch.update(
                batch=keys.batch_row, leases=keys.leases, requests=keys.requests, planes=keys.planes,
                undo_live=keys.undo(Plane.LIVE), undo_shadow=keys.undo(Plane.SHADOW), slots=keys.slots,
                index=keys.index, dead=keys.dead, history=keys.history,
            )  # fmt: skip
        return self._of_the_batch

    def _of_a_command(self, name: str, row: RunId, desk: str) -> str:
        match name:
            case "run":
                return self.keys.run(row)
            case "transcript":
                return self.keys.transcript(row)
            case "desk":
                return self.keys.desk(desk)
        raise ValueError(f"no key is called {name!r}")

    async def decide(
        self,
        name: str,
        args: Mapping[str, object],
        *,
        desk: str = RUNS_DESK,
        argv: Mapping[str, bytes] = NO_ARGV,
    ) -> Decision:
        """Call the script `<fence>.<op>`. `args` fill the envelope; `argv` is what the script takes beside it.

        Raises InputError for an envelope that is too large, ServerUnreachable, ReplyError.
        """
        target = script(name)
        run = args.get("run")
        row = RunId(run) if is_text(run) else NOBODY
        places = self._places()
        named = {name: places.get(name) or self._of_a_command(name, row, desk) for name in target.keys}
        presented = {name: _as_presented(value) for name, value in args.items()}
        envelope = encode({"plane": self.keys.plane.value, "batch": self.keys.batch, **presented})
        return await self.link.run(target, named, {"envelope": envelope, **argv})


def _as_presented(value: object) -> object:
    """What is no text although Python calls it so travels as a list, which no script takes for an argument."""
    return [value] if isinstance(value, str) and value and not is_text(value) else value


@dataclass(frozen=True, slots=True)
class Result(Generic[R]):
    """The answer of an operation. Fields that an answer does not carry are None."""

    verb: Verb
    reason: R | None
    """None when the verb says it all: `commit`, `duplicate`."""

    @property
    def applied(self) -> bool:
        """True when the effect stands: applied now, or by an earlier sending of the same command."""
        return self.verb in (Verb.COMMIT, Verb.DUPLICATE)


class Fence(ABC, Generic[T_co]):
    """One protocol's operations on one batch. `T_co` is the fence's result type."""

    NAME: ClassVar[str]

    def __init__(self, channel: Channel) -> None:
        """The batch must have been created; an operation on none is decided by what an empty batch allows."""
        self._channel = channel

    async def send(self, op: str, args: Mapping[str, object]) -> Decision:
        """Send an operation by its name, with whatever arguments, and read the plain decision.

        Raises ValueError for a name that is no operation, and what `Channel.decide` raises.
        """
        return await self._channel.decide(f"{self.NAME}.{op}", args)

    async def _ask(self, op: str, **args: object) -> T_co:
        return self._result(await self.send(op, args))

    @staticmethod
    @abstractmethod
    def _result(decision: Decision) -> T_co:
        """The decision, typed."""
