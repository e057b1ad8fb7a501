"""Prometheus metrics of one role, served over HTTP for `--metrics PORT`.

Of an open batch there is progress and no pass rate, here as everywhere: a rate of what happens to have ended is not the
batch's, and whoever alerts on it acts on a number that moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    start_http_server,
)
from prometheus_client.process_collector import ProcessCollector

from bus.errors import InputError
from bus.port import Counters, Entry
from bus.types import BatchId, Plane
from workers.observing.observed import Step

__all__ = ["Metrics", "Place", "serve_metrics"]

disable_created_metrics()  # type: ignore[no-untyped-call]  # a time of creation for each series, which nothing reads

_SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_RUN_STATES: Final = ("admitted", "running", "sealed", "scoring", "scored", "holes")
_TOKENS: Final = ("spent", "durable", "reserved", "estimated")


class Metrics:
    """An observer, and what `polling` tells of batches. Its registry is its own: a suite's metrics are not in it."""

    def __init__(self, role: str, plane: Plane) -> None:
        """All of them have the labels `role` and `plane`."""
        self.registry = CollectorRegistry()
        self._own = {"role": role, "plane": str(plane)}
        own = tuple(self._own)
        self._steps = Counter(
            "evalbus_steps", "Steps that were taken through the bus, by what was decided.",
            (*own, "step", "verb", "reason"), registry=self.registry,
        )  # fmt: skip
        self._failed = Counter(
            "evalbus_step_failures", "Steps that got no answer, by the error.", (*own, "step", "error"),
            registry=self.registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "evalbus_step_seconds", "Time from asking for a step to its answer, retries included.", (*own, "step"),
            buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        self._entries = Counter(
            "evalbus_entries", "Entries that were taken from streams; own_pending and take_idle after a death.",
            (*own, "group", "how"), registry=self.registry,
        )  # fmt: skip
        self._held = Gauge(
            "evalbus_leases_held", "Leases that the last heartbeat kept alive.", own, registry=self.registry
        )
        self._lost = Counter(
            "evalbus_leases_lost", "Leases that a heartbeat found gone: fenced, or taken over.", own,
            registry=self.registry,
        )  # fmt: skip
        self._resting = Gauge(
            "evalbus_resting", "1 while this process takes nothing, for its machine cannot do the work.", own,
            registry=self.registry,
        )  # fmt: skip
        self._rests_begun = Counter(
            "evalbus_rests", "Times that this process began to rest, or rested on.", own, registry=self.registry
        )
        if role != "planner":
            self._resting.labels(**self._own).set(0)
        self._resting_all = Gauge("evalbus_resting_consumers", "Consumers of the plane that take nothing.", own,
                                  registry=self.registry)  # fmt: skip
        batch = (*own, "batch")
        self._intended = Gauge("evalbus_batch_intended_runs", "Runs of the batch: its denominator.", batch,
                               registry=self.registry)  # fmt: skip
        self._runs = Gauge("evalbus_batch_runs", "Runs of an open batch by state; progress, never a rate.",
                           (*batch, "state"), registry=self.registry)  # fmt: skip
        self._refusals = Gauge("evalbus_batch_refusals", "Refusals in the batch's history, by reason.",
                               (*batch, "reason"), registry=self.registry)  # fmt: skip
        self._tokens = Gauge("evalbus_batch_tokens", "Tokens of the batch, by what became of them.", (*batch, "kind"),
                             registry=self.registry)  # fmt: skip
        self._budget = Gauge("evalbus_batch_token_budget", "Tokens that the batch may spend; 0: as many as it likes.",
                             batch, registry=self.registry)  # fmt: skip
        self._waiting = Gauge("evalbus_batch_waiting_entries", "Entries pending at a group, 1 more for undelivered.",
                              (*batch, "group"), registry=self.registry)  # fmt: skip
        self._effects = Gauge("evalbus_batch_effects", "Calls of tools that have not ended, and those that nobody can.",
                              (*batch, "state"), registry=self.registry)  # fmt: skip
        self._of_batches = (
            self._intended, self._runs, self._refusals, self._tokens, self._budget, self._waiting, self._effects,
        )  # fmt: skip
        ProcessCollector(registry=self.registry)

    def step(self, step: Step) -> None:
        """As `Observer` has it."""
        own = self._own
        if step.failed:
            self._failed.labels(**own, step=step.name, error=step.failed).inc()
            return
        self._seconds.labels(**own, step=step.name).observe(step.seconds)
        for decision in step.decisions:
            verb, reason = decision.verb.value, decision.reason or ""
            self._steps.labels(**own, step=step.name, verb=verb, reason=reason).inc()
        if step.name == "heartbeat":
            kept = sum(decision.applied for decision in step.decisions)
            self._held.labels(**own).set(kept)
            self._lost.labels(**own).inc(len(step.decisions) - kept)

    def entries(self, how: str, entries: Sequence[Entry]) -> None:
        """As `Observer` has it."""
        for entry in entries:
            self._entries.labels(**self._own, group=entry.group.value, how=how).inc()

    def rests(self, rests: bool) -> None:
        """This process takes nothing; or does again."""
        self._resting.labels(**self._own).set(int(rests))
        if rests:
            self._rests_begun.labels(**self._own).inc()

    def resting(self, count: int) -> None:
        """So many consumers of the plane take nothing."""
        self._resting_all.labels(**self._own).set(count)

    def batch(self, batch: BatchId, counts: Counters, budget: int | None, waiting: Mapping[str, int]) -> None:
        """What a batch has come to; `waiting`: entries by group."""
        labels = {**self._own, "batch": batch}
        self._intended.labels(**labels).set(counts.intended)
        for state in _RUN_STATES:
            self._runs.labels(**labels, state=state).set(getattr(counts, state))
        for reason, count in counts.refusals.items():
            self._refusals.labels(**labels, reason=reason).set(count)
        for kind in _TOKENS:
            self._tokens.labels(**labels, kind=kind).set(getattr(counts, kind))
        self._budget.labels(**labels).set(budget or 0)
        self._effects.labels(**labels, state="open").set(counts.effects_open)
        self._effects.labels(**labels, state="stuck").set(counts.stuck)
        for group, count in waiting.items():
            self._waiting.labels(**labels, group=group).set(count)

    def forget(self, batch: BatchId) -> None:
        """It has ended and was told for the last time, or is not there any more."""
        for gauge in self._of_batches:
            gauge.remove_by_labels({"batch": batch})


@dataclass(frozen=True, slots=True)
class Place:
    """Where metrics are served."""

    host: str
    port: int

    @classmethod
    def read(cls, written: str) -> Place:
        """`9464`, for this machine only, or `HOST:9464`. Raises InputError."""
        host, _, port = written.rpartition(":")
        if not port.isascii() or not port.isdigit() or int(port) > 65535:  # noqa: PLR2004
            raise InputError(
                f"--metrics: {written!r} is no port", remedy="write 9464, or 0.0.0.0:9464 to let others in"
            )
        return cls(host.strip("[]") or "127.0.0.1", int(port))


def serve_metrics(metrics: Metrics, place: Place) -> int:
    """Serve `/metrics` from a thread, until the process ends. Returns the port. Raises InputError if it is taken."""
    try:
        server, _ = start_http_server(place.port, place.host, metrics.registry)
    except OSError as error:
        remedy = "give another port; 0 takes any that is free"
        raise InputError(f"--metrics: {place.host}:{place.port}: {error.strerror or error}", remedy=remedy) from None
    return server.server_port
