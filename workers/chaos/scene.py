"""A batch under way, as the faults see it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from dataclasses import dataclass, field

import structlog

from bus.keys import BatchKeys
from workers.chaos.deaths import Deaths
from workers.chaos.faults import Fault
from workers.chaos.plan import Strike
from workers.chaos.stage import Stage
from workers.processes.role_options import Role

__all__ = ["Scene"]

log = structlog.get_logger("evalbus.chaos")


@dataclass(slots=True)
class Scene:
    """What a fault needs to strike, and where it says that it has."""

    stage: Stage
    keys: BatchKeys
    deaths: Deaths
    lease: float
    """Seconds."""
    faults: Counter[Fault] = field(default_factory=Counter)
    """Those that have struck."""

    def struck(self, strike: Strike, whom: str = "") -> None:
        """It has: from here on it counts."""
        self.faults[strike.fault] += 1
        log.info("fault.struck", fault=str(strike), whom=whom)

    def living(self, *roles: Role) -> dict[str, int]:
        """Consumer name → process id."""
        return self.stage.fleet.members(*roles)

    @staticmethod
    def signal(pid: int, number: signal.Signals) -> None:
        """Nobody there is nobody struck."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    async def pause(self, seconds: float) -> None:
        """While a fault lasts."""
        await asyncio.sleep(seconds)
