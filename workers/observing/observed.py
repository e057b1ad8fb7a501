"""A bus that tells observers of each step, its decision and its time. Everything else of it is the bus itself."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

import structlog

from bus.cluster import ServerBus
from bus.port import Entry, Ref
from bus.types import BatchId, Decision, RunId

__all__ = ["STEPS", "Observer", "Step", "observed"]

log = structlog.get_logger("evalbus.observing")

STEPS: Final = frozenset(
    {
        "create", "admit", "adopt", "abandon", "requeue", "sweep", "rebind", "close", "claim", "append", "seal",
        "give_back", "hole", "score_claim", "score", "score_give_back", "score_hole", "open_call", "flush", "bind_call",
        "drop_call", "resolve", "open_judge", "bind_judge", "write", "put_tools", "join", "turn", "tool_claim",
        "tool_sent", "tool_complete", "tool_requeue", "heartbeat",
    }
)  # fmt: skip
"""Methods of a bus that come to a `Decision`, or to several."""
_READS: Final = frozenset({"read", "own_pending", "take_idle"})
"""Methods that bring entries."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step that was taken through the bus."""

    name: str
    batch: BatchId | None
    run: RunId | None
    arguments: Mapping[str, Any]
    """By the names that the method gives them."""
    decisions: Sequence[Decision]
    """Several for a heartbeat; none for a step that raised."""
    seconds: float
    failed: str = ""
    """The name of the exception, of a step that raised one."""


class Observer(Protocol):
    """Who is told. Both return at once; what they raise is logged, and they are not told again."""

    def step(self, step: Step) -> None:
        """A step was answered."""

    def entries(self, how: str, entries: Sequence[Entry]) -> None:
        """Entries came: `read`, `own_pending` or `take_idle`."""


class _Observed:
    """Stands in front of a bus. Methods are wrapped once, when they are first asked for."""

    def __init__(self, bus: ServerBus, observers: Sequence[Observer]) -> None:
        self._bus, self._observers = bus, list(observers)

    def __getattr__(self, name: str) -> object:
        found = getattr(self._bus, name)
        if name in STEPS:
            found = self._step(name, found)
        elif name in _READS:
            found = self._read(name, found)
        else:
            return found  # a property, too, which is asked anew each time
        self.__dict__[name] = found
        return found

    def _step(self, name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        signature = inspect.signature(method)

        @functools.wraps(method)
        async def step(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the method has them
            began = time.perf_counter()
            try:
                result = await method(*args, **kwargs)
            except Exception as error:
                self._tell(_told(name, signature, args, kwargs, [], began, type(error).__name__))
                raise
            decisions = [result] if isinstance(result, Decision) else list(result)
            self._tell(_told(name, signature, args, kwargs, decisions, began))
            return result

        return step

    def _read(self, name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(method)
        async def read(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the method has them
            entries = await method(*args, **kwargs)
            if entries:
                self._each(lambda observer: observer.entries(name, entries))
            return entries

        return read

    def _tell(self, step: Step) -> None:
        self._each(lambda observer: observer.step(step))

    def _each(self, tell: Callable[[Observer], None]) -> None:
        for observer in list(self._observers):
            try:
                tell(observer)
            except Exception:  # whatever it is, no run is to be lost over it
                log.exception("observer.left_out", observer=type(observer).__name__)
                self._observers.remove(observer)


def observed(bus: ServerBus, observers: Sequence[Observer]) -> ServerBus:
    """The bus, and each of its steps told to the observers; the bus itself when there are none."""
    return cast("ServerBus", _Observed(bus, observers)) if observers else bus


def _told(
    name: str,
    signature: inspect.Signature,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    decisions: Sequence[Decision],
    began: float,
    failed: str = "",
) -> Step:
    arguments = signature.bind(*args, **kwargs).arguments
    first = next(iter(arguments.values()), None)
    batch, run = arguments.get("batch"), arguments.get("run")
    if isinstance(first, Ref | Entry):
        batch, run = first.batch, first.run
    return Step(name, batch, run, arguments, decisions, time.perf_counter() - began, failed)
