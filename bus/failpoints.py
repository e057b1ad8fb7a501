"""Points at which a process can be told to die, to be late, or to repeat itself: for `evalbus chaos`, for nobody else.

Killed from outside, a process dies somewhere near a point. What goes wrong between a decision and the moment at which
its asker learns of it can be tried only there: so a process whose environment names a directory in EVALBUS_FAILPOINTS
looks, around each script, for an order in the file that is called like its process id.

    {"when": "before"|"after", "scripts": ["run.claim", …], "do": …, "seconds": 0.0}       an empty list: any script

    before   the request has not left
    after    the server has applied it and answered; whoever asked has not heard of it

    kill     SIGKILL, by the process to itself; `seconds` later, while everything goes on
    stall    the script waits so long. Before an acknowledgement that is a late one
    lose     the answer is lost, as if the connection had been; only `after`
    repeat   the same request arrives once more, `seconds` later, and nobody hears the answer; only `after`
    clock    the process's clock jumps by so many seconds, forth or back

An order is carried out once; its file is gone from then on. Without the variable a script costs one comparison more.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Self

import structlog

from bus.errors import EvalbusError, ServerUnreachable

__all__ = ["ARMED", "ENVIRONMENT", "Failpoints", "Order", "jumped"]

ENVIRONMENT = "EVALBUS_FAILPOINTS"

log = structlog.get_logger("evalbus.failpoints")


@dataclass(frozen=True, slots=True)
class Order:
    """See the module's text."""

    when: Literal["before", "after"]
    scripts: tuple[str, ...]
    do: Literal["kill", "stall", "lose", "repeat", "clock"]
    seconds: float = 0.0

    def place(self, directory: Path, pid: int) -> Path:
        """Give it to a process, in place of an order that it has not met yet. Returns the file that will be gone."""
        file = directory / str(pid)
        draft = directory / f".{pid}"
        draft.write_text(json.dumps(asdict(self)))
        draft.replace(file)  # whole or not at all: it is read at any moment
        return file

    @classmethod
    def read(cls, text: str) -> Self:
        """What `place` wrote. Raises ValueError."""
        fields: Mapping[str, object] = json.loads(text)
        scripts = fields["scripts"]
        if not isinstance(scripts, list):
            raise ValueError("scripts is not a list")
        return cls(**{**fields, "scripts": tuple(scripts)})  # type: ignore[arg-type]

    def is_met(self, when: str, script: str) -> bool:
        """Whether this is the point."""
        return when == self.when and (not self.scripts or script in self.scripts)


class Failpoints:
    """The orders of this process."""

    def __init__(self, directory: Path) -> None:
        """`directory`: where they are placed."""
        self._directory = directory
        self.jumped = 0.0
        """Seconds by which the process's clock is off."""
        self._late: set[asyncio.Task[None]] = set()

    async def before(self, script: str) -> None:
        """The request is about to leave."""
        if order := self._taken("before", script):
            await self._carry_out(order)

    async def after(self, script: str, again: Callable[[], Awaitable[object]]) -> None:
        """It was answered. `again` sends it once more. Raises ServerUnreachable where the answer is to be lost."""
        order = self._taken("after", script)
        if order is None:
            return
        if order.do == "lose":
            raise ServerUnreachable("the answer was lost, by order")
        if order.do == "repeat":
            late = asyncio.create_task(self._repeat(order.seconds, again))
            self._late.add(late)
            late.add_done_callback(self._late.discard)
            return
        await self._carry_out(order)

    def _taken(self, when: str, script: str) -> Order | None:
        file = self._directory / str(os.getpid())
        try:
            order = Order.read(file.read_text())
        except (OSError, ValueError, LookupError, TypeError):
            return None
        if not order.is_met(when, script):
            return None
        try:
            file.unlink()
        except OSError:  # withdrawn this very moment
            return None
        log.warning("failpoint.met", when=when, script=script, do=order.do, seconds=order.seconds)
        return order

    async def _carry_out(self, order: Order) -> None:
        match order.do:
            case "kill" if order.seconds:
                asyncio.get_running_loop().call_later(order.seconds, os.kill, os.getpid(), signal.SIGKILL)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stall":
                await asyncio.sleep(order.seconds)
            case "clock":
                self.jumped += order.seconds

    @staticmethod
    async def _repeat(seconds: float, again: Callable[[], Awaitable[object]]) -> None:
        await asyncio.sleep(seconds)
        try:
            await again()
        except EvalbusError as error:  # the connection that it would have come by is gone, and so is the request
            log.info("failpoint.not_repeated", why=str(error))


ARMED: Failpoints | None = Failpoints(Path(os.environ[ENVIRONMENT])) if os.environ.get(ENVIRONMENT) else None
"""None where nobody is to be troubled: everywhere but in a process that chaos started."""


def jumped() -> float:
    """Seconds by which this process's clock is off."""
    return 0.0 if ARMED is None else ARMED.jumped
