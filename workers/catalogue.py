"""Which batches a role serves, and with which copy of their suite.

A batch records the digest of its suite directory. A role serves a batch only with a copy of exactly that content: its
own (`--suite DIR`), the batch's signed bundle (`--fetch-suite`), or the one at the path that the batch recorded.
Anything else is refused in one line, and nothing of that batch is taken. Nor is anything before the role is prepared
for that suite: code that does not import, or takes its time to, holds no lease meanwhile.

A refusal stands: a batch never changes its digest. It ends the role if that was started for the refused batch
(`--batch`), or, at the first look, for a suite of which no open batch can be served: waiting would look like work.
Later it is only logged, once a batch: the one that the role is there for may yet come, or may just have ended.

What has ended is forgotten, or a role on a shared server would grow with each batch that it ever saw. Should one be
open again (its server lost the last moments, and with them the close), it is met again like any other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import structlog

from bus.at_once import all_of
from bus.errors import InputError, MachineError
from bus.imported.looking import only_for_looking
from bus.partitions import is_part_of, taken_by
from bus.port import BatchInfo, BatchSpec, Bus
from bus.types import BatchId, Digest, RunId
from workers import usercode
from workers.inspecting.target import file_of
from workers.rescoring import origin_of
from workers.results.whole import whole_of
from workers.suite import Suite, load_suite

__all__ = ["Catalogue", "Served"]

log = structlog.get_logger("evalbus.catalogue")

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Served:
    """A batch that this process serves, and the suite that it serves it with."""

    info: BatchInfo
    suite: Suite
    runs: tuple[RunId, ...]
    candidate: str
    judge: str
    origin: BatchId
    """Where its runs were sealed."""

    @classmethod
    def of(cls, info: BatchInfo, suite: Suite, origin: BatchId) -> Served:
        """What is derived from the suite is derived once: it is asked for at every run.

        Which model was asked, and which one judges, is the batch's to say: not everybody who works on it has the
        environment of those who ask. Nor is the candidate this suite's where another batch's answers are scored anew.
        """
        asked_elsewhere = suite.model is not None or info.spec.source
        candidate = info.spec.candidate if asked_elsewhere else suite.candidate
        judge = info.spec.judge if suite.scorer.kind == "model" else suite.judge
        part = info.spec.part
        intended = info.spec.intended if part is None else part.intended
        runs = tuple(taken_by(part, suite.made_with(intended, info.spec.cases).run_ids()))
        return cls(info, suite, runs, candidate, judge, origin)

    @property
    def batch(self) -> BatchId:
        """The batch's name."""
        return self.info.spec.batch

    @property
    def lease(self) -> float:
        """Seconds of silence after which a holder is suspected."""
        return self.info.spec.lease_ms / 1000


@dataclass(frozen=True, slots=True)
class _Look:
    """What one look at new batches has done for one of them, and need not do for the next: a thousand that were
    declared at once are mostly of one suite. Only within a look: by the next one its directory may be in another state.
    """

    loaded: dict[tuple[Path, str], Suite] = field(default_factory=dict)
    prepared: set[tuple[str, str, str]] = field(default_factory=set)
    """Suite, candidate and judge."""


@dataclass(slots=True)
class Catalogue:
    """See the module's text. `only`: serve this batch, or its partitions, and end with it. `suite`: the copy to
    serve with.

    `fetch`: how to get a batch's suite from its bundle; returns the suite file, raises InputError.
    `prepare`: what the role does with a suite before its batch, in a thread; raises InputError when it cannot.
    """

    bus: Bus
    suite: Suite | None = None
    only: BatchId | None = None
    prepare: Callable[[Suite, BatchSpec], None] | None = None
    fetch: Callable[[BatchInfo], Awaitable[Path]] | None = None
    _served: dict[BatchId, Served] = field(default_factory=dict)
    _refused: set[BatchId] = field(default_factory=set)
    _put_off: set[BatchId] = field(default_factory=set)
    """Told of already."""
    _met_one: asyncio.Event = field(default_factory=asyncio.Event)
    _looked: bool = False
    _stopped: bool = False
    _loading: asyncio.Future[object] | None = None

    async def open_batches(self) -> list[Served]:
        """The batches to serve now. Raises InputError when what was asked for cannot be served: see above."""
        names = await self.bus.batches()
        if self.only is not None:
            names = [name for name in names if is_part_of(name, self.only)]
        self._forget_all_but(set(names))
        first, self._looked = not self._looked, True
        refused = await self._meet_all([name for name in names if name not in self._served.keys() | self._refused])
        served = [self._served[name] for name in names if name in self._served]
        if refused and not served and (self.only is not None or (first and self.suite is not None)):
            raise InputError(next(iter(refused.values())))
        for name, why in refused.items():
            log.error("batch.refused", batch=name, why=why)
        return served

    async def met(self) -> list[Served]:
        """Of the open batches, those that are served already. It meets none."""
        return [self._served[name] for name in await self.bus.batches() if name in self._served]

    def suites(self) -> set[Digest]:
        """Of which suites, by their digests, batches are served."""
        return {one.suite.digest for one in self._served.values()}

    async def one_met(self, seconds: float) -> None:
        """Wait until one more is served, `seconds` at most."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._met_one.wait(), seconds)

    def stop(self) -> None:
        """Load no suite any more, nor wait for the one that is being loaded: it may never be."""
        self._stopped = True
        if self._loading is not None:
            self._loading.cancel()

    async def ended(self) -> bool:
        """True when the one batch that was asked for has ended."""
        if self.only is None:
            return False
        whole = await whole_of(self.bus, self.only)
        if whole is None:
            raise InputError(f"no batch {self.only!r} on this server, plane {self.bus.plane}")
        if whole.info.imported:
            raise only_for_looking(self.only)
        return whole.has_ended

    def _forget_all_but(self, names: set[BatchId]) -> None:
        for gone in self._served.keys() - names:
            del self._served[gone]
        self._refused &= names

    async def _meet_all(self, names: Sequence[BatchId]) -> Mapping[BatchId, str]:
        """Meet batches that were not met before. Returns why, for those that are refused."""
        refused: dict[BatchId, str] = {}
        look = _Look()
        for name, asked in zip(names, await all_of([self._asked(name) for name in names]), strict=True):
            try:
                await self._meet(name, asked, look)
            except MachineError as error:  # no word about the batch: the next look may fare better
                if name not in self._put_off:
                    self._put_off.add(name)
                    log.warning("batch.put_off", batch=name, why=str(error))
            except InputError as error:
                self._refused.add(name)
                refused[name] = str(error)
        return refused

    async def _asked(self, name: BatchId) -> BatchInfo | InputError | None:
        try:
            return await self.bus.info(name)
        except InputError as error:
            return error

    async def _meet(self, name: BatchId, info: BatchInfo | InputError | None, look: _Look) -> None:
        if isinstance(info, InputError):
            raise info
        if info is None:
            return
        if self.only is None and self.suite is not None and not self._ours(self.suite, info):
            return  # a batch of another suite is somebody else's
        if self.only not in (None, name) and info.spec.part is None:
            return  # it is only called like a partition
        suite = await self._copy(info, look)
        if suite is None:
            return
        if suite.digest != info.spec.suite_digest:
            raise InputError(
                f"batch {name!r} was made from another state of suite {info.spec.suite!r}: "
                f"{info.spec.suite_digest[:12]} there, {suite.digest[:12]} here",
                remedy="give an unchanged copy: --suite DIR",
            )
        kind = suite.digest, info.spec.candidate, info.spec.judge
        if self.prepare is not None and kind not in look.prepared:
            prepare = self.prepare
            await self._apart(lambda found: prepare(found, info.spec), suite)
            look.prepared.add(kind)
        origin = await origin_of(self.bus, info.spec)
        if not self._stopped:
            self._served[name] = Served.of(info, suite, origin)
            self._met_one.set()
            self._met_one = asyncio.Event()

    @staticmethod
    def _ours(suite: Suite, info: BatchInfo) -> bool:
        """By its name, or by its content: a suite that declares no name is called like the directory of each copy."""
        return suite.name == info.spec.suite or suite.digest == info.spec.suite_digest

    async def _copy(self, info: BatchInfo, look: _Look) -> Suite | None:
        """The copy to serve it with; None when the role was stopped before it was loaded."""
        if self.suite is not None:
            return self.suite
        path = Path(info.spec.suite_path) if self.fetch is None else await self.fetch(info)
        if not file_of(path).exists():
            raise InputError(
                f"no copy of suite {info.spec.suite!r} on this machine (batch {info.spec.batch!r} was made at {path})",
                remedy="give one: --suite DIR",
            )
        known = look.loaded.get((path, info.spec.suite_digest))
        suite = known or await self._apart(load_suite, path)
        assert suite is None or isinstance(suite, Suite)
        if suite is not None:
            look.loaded[path, suite.digest] = suite
        return suite

    async def _apart(self, function: Callable[[A], object], argument: A) -> object:
        """Run the suite's code in a thread: what is held must be renewed meanwhile. None when the role was stopped."""
        if self._stopped:
            return None
        # A thread that the process does not wait for.
        loading = self._loading = asyncio.ensure_future(usercode.call(function, argument))
        try:
            await asyncio.wait({loading})
        finally:
            loading.cancel()
            self._loading = None
        return None if loading.cancelled() else loading.result()
