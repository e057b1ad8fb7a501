"""Which observers a role has: by `--metrics`, and by the standard variables of OpenTelemetry."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from bus.cluster import ServerBus
from bus.types import BatchId
from workers.observing.tracing import wanted
from workers.processes.role_options import Role, RoleOptions

__all__ = ["Observing", "observing"]

log = structlog.get_logger("evalbus.observing")


class _Provider(Protocol):
    def shutdown(self) -> Any: ...  # noqa: ANN401 - whatever the library says


@dataclass
class Observing:
    """What a role is watched by; nothing when nobody asked for it."""

    observers: list[Any] = field(default_factory=list)
    metrics: Any = None
    providers: Sequence[_Provider] = ()

    def seen(self, bus: ServerBus) -> ServerBus:
        """The bus through which a role's steps are seen; the bus itself where nobody watches."""
        if not self.observers:
            return bus
        from workers.observing.observed import observed  # noqa: PLC0415 - most roles need none

        return observed(bus, self.observers)

    @contextlib.contextmanager
    def polling(self, bus: ServerBus, options: RoleOptions) -> Iterator[None]:
        """While a planner serves, its batches are told of."""
        if self.metrics is None or options.role is not Role.PLANNER:
            yield
            return
        from workers.observing.polling import poll_batches  # noqa: PLC0415 - likewise

        only = BatchId(options.batch) if options.batch else None
        task = asyncio.get_running_loop().create_task(poll_batches(bus, self.metrics, only))
        try:
            yield
        finally:
            task.cancel()

    def rests(self, rests: bool) -> None:
        """The role's consumer takes nothing, or does again."""
        if self.metrics is not None:
            self.metrics.rests(rests)

    def close(self) -> None:
        """Send what was not sent yet."""
        for provider in self.providers:
            with contextlib.suppress(Exception):  # an exporter that fails at the end is not the role's failure
                provider.shutdown()


def observing(options: RoleOptions, consumer: str) -> Observing:
    """Set up what was asked for. Raises InputError for a port that is taken, or an extra that is missing."""
    made = Observing()
    if options.metrics is not None:
        from workers.observing.prometheus import Metrics, Place, serve_metrics  # noqa: PLC0415 - most roles need none

        made.metrics = Metrics(options.role, options.plane)
        made.observers.append(made.metrics)
        place = Place.read(options.metrics)
        log.info("metrics.served", host=place.host, port=serve_metrics(made.metrics, place))
    if wanted():
        from workers.observing.tracing import Tracing, providers  # noqa: PLC0415 - likewise

        tracers, meters = providers(options.role, consumer)
        made.observers.append(Tracing(options.plane, tracers, meters))
        made.providers = [tracers, meters]  # type: ignore[list-item]  # the SDK's, which can be shut down
    return made
