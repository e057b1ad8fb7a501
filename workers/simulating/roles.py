"""The roles of a simulated batch: their own code, with an endpoint that is simulated and a clock that is not theirs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

import structlog

from bus.errors import EvalbusError, MachineError
from bus.port import BatchSpec, Bus, Group
from bus.types import ConsumerId, LeaseId
from workers.catalogue import Catalogue, Served
from workers.consumer import Consumer, Handler
from workers.lease import Lease
from workers.planner import Planner
from workers.simulating.endpoint import SimulatedPlane
from workers.simulating.judging import SimulatedScorer
from workers.simulating.lab import Lab
from workers.simulating.line import Line
from workers.simulating.machines import SimulatedDisks
from workers.simulating.process import Process
from workers.simulating.setting import BATCH
from workers.suite import Suite
from workers.tools.serving import JointConsumer, Toolroom
from workers.worker import Worker

__all__ = ["Role", "planner", "scorer", "worker"]

log = structlog.get_logger("evalbus.simulated")


class Role(Protocol):
    """What a process runs."""

    def stop(self) -> None:
        """Stop, and hand back what is held."""

    async def run(self) -> None:
        """Until stopped, or until the batch has ended."""


class _Observed:
    """A handler whose own mistakes are told: a consumer only logs them, and leaves the entry to somebody else."""

    def __init__(self, handler: Handler, tell: Callable[[str], None]) -> None:
        self._handler, self._tell = handler, tell
        self.prepare, self.time_of, self.give_back = handler.prepare, handler.time_of, handler.give_back
        self.forget_all_but = handler.forget_all_but

    async def handle(self, lease: Lease, served: Served, lease_id: LeaseId) -> float | None:
        try:
            return await self._handler.handle(lease, served, lease_id)
        except EvalbusError:
            raise
        except Exception as error:
            self._tell(f"{type(error).__name__} in {type(self._handler).__name__}: {error}")
            raise


class _Worker(Worker):
    """One whose model is simulated."""

    process: Process

    def prepare(self, suite: Suite, spec: BatchSpec) -> None:
        """See Worker."""
        if suite.model is not None and suite.target is not None:
            self._planes.setdefault(suite.digest, SimulatedPlane(suite.model, suite.target, self.process))
        super().prepare(suite, spec)

    async def give_back(self, lease: Lease, fault: MachineError | None = None) -> bool:
        """See Worker."""
        if await super().give_back(lease, fault):
            return True
        assert lease.ref is not None, "it was ended"
        self.process.ends_for_machines(lease.ref.run)
        return False


class _Planner(Planner):
    """One that asks the simulated endpoint what its requests cost."""

    lab: Lab

    async def _asked(self, served: Served, desk: str) -> dict[str, int | None] | None:
        calls = await self._bus.expired_calls(served.batch, desk)
        return {call.desk_lease: self.lab.figure(call.request_id) for call in calls}


def planner(process: Process, suite: Suite, name: ConsumerId) -> Role:
    """A planner of the batch."""
    bus = cast("Bus", Line(process))
    role = _Planner(bus, process.runtime, name, Catalogue(bus, suite, BATCH))
    role.lab = process.lab
    return role


def worker(process: Process, suite: Suite, name: ConsumerId, work: Path, tell: Callable[[str], None]) -> Role:
    """A worker, which calls tools, too, where the suite has any that are called from the stream."""
    bus, runtime, room = cast("Bus", Line(process)), process.runtime, Toolroom()
    catalogue, disks = Catalogue(bus, suite, BATCH), SimulatedDisks(process.place.machines, process.machine)
    handler = _Worker(bus, runtime, name, work / name, None, room.tools_of(bus, runtime), disks, process.machine)
    handler.process = process
    observed = _Observed(handler, tell)
    runs = Consumer(bus, runtime, Group.WORKER, name, catalogue, observed, quarantine=room.quarantine, disks=disks)
    if not any(tool.from_stream for tool in suite.tools.values()):
        return runs
    return JointConsumer([runs, room.consumer(cast("Bus", Line(process)), runtime, name, catalogue)])


def scorer(process: Process, suite: Suite, name: ConsumerId, work: Path, tell: Callable[[str], None]) -> Role:
    """A scorer of the batch."""
    bus = cast("Bus", Line(process))
    disks = SimulatedDisks(process.place.machines, process.machine)
    handler = SimulatedScorer(bus, process.runtime, name, work / name, None, disks, process.machine)
    handler.process = process
    observed = _Observed(handler, tell)
    return Consumer(bus, process.runtime, Group.SCORER, name, Catalogue(bus, suite, BATCH), observed, disks=disks)
