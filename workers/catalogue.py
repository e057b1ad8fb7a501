"""Which batches a role serves, and with which copy of their suite.

A batch records the digest of its suite directory. A role serves a batch only with a copy of exactly that content: its
own (`--suite DIR`) or the one at the path that the batch recorded. Anything else is refused in one line, and nothing of
that batch is taken.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from bus.errors import EvalbusError, InputError
from bus.port import BatchInfo, Bus
from bus.types import BatchId, RunId
from workers.suite import Suite, load_suite

__all__ = ["Catalogue", "Served"]

log = structlog.get_logger("evalbus.catalogue")


@dataclass(frozen=True, slots=True)
class Served:
    """A batch that this process serves, and the suite that it serves it with."""

    info: BatchInfo
    suite: Suite
    runs: tuple[RunId, ...]
    candidate: str
    judge: str

    @classmethod
    def of(cls, info: BatchInfo, suite: Suite) -> Served:
        """What is derived from the suite is derived once: it is asked for at every run."""
        return cls(info, suite, tuple(suite.run_ids()), suite.candidate, suite.judge)

    @property
    def batch(self) -> BatchId:
        """The batch's name."""
        return self.info.spec.batch

    @property
    def lease(self) -> float:
        """Seconds of silence after which a holder is suspected."""
        return self.info.spec.lease_ms / 1000


@dataclass(slots=True)
class Catalogue:
    """See the module's text. `only`: serve this batch and end with it. `suite`: the copy to serve with."""

    bus: Bus
    suite: Suite | None = None
    only: BatchId | None = None
    _served: dict[BatchId, Served] = field(default_factory=dict)
    _refused: dict[BatchId, str] = field(default_factory=dict)

    async def open_batches(self) -> list[Served]:
        """The batches to serve now. Raises InputError when the one that was asked for cannot be served."""
        names = await self.bus.batches()
        if self.only is not None:
            names = [name for name in names if name == self.only]
        for name in names:
            if name not in self._served and name not in self._refused:
                await self._meet(name)
        served = [self._served[name] for name in names if name in self._served]
        if not served and self._refused and (self.only is not None or self.suite is not None):
            # Started for a suite whose only batches were made from another state of it: waiting would look like work.
            raise InputError(next(iter(self._refused.values())))
        return served

    async def ended(self) -> bool:
        """True when the one batch that was asked for has ended."""
        if self.only is None:
            return False
        info = await self.bus.info(self.only)
        if info is None:
            raise InputError(f"no batch {self.only!r} on this server")
        return info.status.ended

    def of(self, batch: BatchId) -> Served:
        """A batch that is served."""
        return self._served[batch]

    async def _meet(self, name: BatchId) -> None:
        info = await self.bus.info(name)
        if info is None:
            return
        if self.suite is not None and name != self.only and not self._ours(self.suite, info):
            return  # a batch of another suite is somebody else's
        try:
            suite = await self._copy(info)
            if suite.digest != info.spec.suite_digest:
                raise InputError(
                    f"batch {name!r} was made from another state of suite {info.spec.suite!r}: "
                    f"{info.spec.suite_digest[:12]} there, {suite.digest[:12]} here",
                    remedy="give an unchanged copy: --suite DIR",
                )
        except EvalbusError as error:
            self._refused[name] = str(error)
            log.error("batch.refused", batch=name, why=str(error))
            return
        self._served[name] = Served.of(info, suite)

    @staticmethod
    def _ours(suite: Suite, info: BatchInfo) -> bool:
        """By its name, or by its content: a suite that declares no name is called like the directory of each copy."""
        return suite.name == info.spec.suite or suite.digest == info.spec.suite_digest

    async def _copy(self, info: BatchInfo) -> Suite:
        if self.suite is not None:
            return self.suite
        path = Path(info.spec.suite_path)
        if not path.exists():
            raise InputError(
                f"no copy of suite {info.spec.suite!r} on this machine (batch {info.spec.batch!r} was made at {path})",
                remedy="give one: --suite DIR",
            )
        return await asyncio.to_thread(load_suite, path)
