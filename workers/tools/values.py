"""What passes between a solver, its tools and those who call them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bus.types import Plane, RunId

if TYPE_CHECKING:
    from workers.workspace import Workspace

__all__ = [
    "Answer",
    "Call",
    "NothingDoneError",
    "Observation",
    "Order",
    "SilenceError",
    "ToolContext",
    "ToolFailedError",
    "call",
]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool and its arguments, ready to be made. Arguments are what JSON can say."""

    tool: str
    args: Mapping[str, object]


def call(tool: str, /, **args: object) -> Call:
    """A call for `run.tools.gather(call("search", q="x"), call("search", q="y"))`."""
    return Call(tool, args)


@dataclass(frozen=True, slots=True)
class Observation:
    """What came of a call. `ok` False: the tool failed, or was taken back; `text` says what is known of it."""

    tool: str
    ok: bool
    text: str


class ToolFailedError(Exception):
    """A tool said that it failed. A solver may catch it and go on; `str(error)` is what the tool said."""

    def __init__(self, observation: Observation) -> None:
        """See the class."""
        super().__init__(f"{observation.tool}: {observation.text}")
        self.observation = observation


class NothingDoneError(Exception):
    """A tool's function raises it to say: it failed, and it has done nothing.

    Of a tool with effects outside, any other exception leaves open whether the effect is there; such a call is neither
    repeated nor given up, but taken back when its bound is over.
    """


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool's function is told beside its arguments, if it has a parameter named `context`."""

    key: str
    """The call's idempotency key: the same however often and by whomever it is made. Empty: nothing is kept of it."""
    plane: Plane
    run: RunId
    deadline: float
    """When the call is given up, on the clock of `time.monotonic`."""
    undoes: str | None = None
    """The key of the call that is to be taken back."""
    workspace: Workspace | None = None
    """The run's directory, where the call is made by the run's holder."""


@dataclass(frozen=True, slots=True)
class Order:
    """One call as it is to be made."""

    tool: str
    args: Mapping[str, object]
    context: ToolContext


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool said. `ok` False: it failed, and nothing was done. `echo`: the key as it came back."""

    ok: bool
    text: str
    echo: str | None = None


class SilenceError(Exception):
    """Nobody knows what came of a call: it may have had its effect. `str(error)` says what happened instead."""
