"""What came of it: everything that was measured, and the same as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from workers.benching.bare import Traffic
from workers.benching.calls import CallRates
from workers.benching.distance import Distance
from workers.benching.driving import Cost
from workers.benching.flat import Flat
from workers.benching.killing import Recovery
from workers.benching.kinds import Kind
from workers.benching.latency import Latency
from workers.benching.machine import this_machine
from workers.benching.peers import JobRate, Unable
from workers.benching.spread import Spread, ratios
from workers.benching.startup import StartTimes

__all__ = ["PeerRates", "Report", "Round", "Throughput", "traffic_of"]


@dataclass(frozen=True, slots=True)
class Round:
    """One turn: ours, and what was measured beside it. `bare` only where the messages are the same."""

    ours: Cost
    physical: float
    bare: float | None


@dataclass(frozen=True, slots=True)
class Throughput:
    """One kind of run with so many worker processes."""

    kind: Kind
    workers: int
    sent_per_run: float
    """Commands that all processes together send a run; a script is one, whatever it does."""
    rounds: tuple[Round, ...]

    def spread(self, of: Callable[[Round], float]) -> Spread:
        """Of a figure."""
        return Spread.of(of(one) for one in self.rounds)

    @property
    def rate(self) -> Spread:
        """Runs a second."""
        return self.spread(lambda one: one.ours.runs_per_s)

    @property
    def bare(self) -> Spread | None:
        """Runs a second of the bare loop."""
        values = [one.bare for one in self.rounds if one.bare is not None]
        return Spread.of(values) if values else None

    @property
    def of_bare(self) -> Spread | None:
        """Ours over the bare loop, round by round."""
        return None if self.bare is None else ratios(self.rate.values, self.bare.values)

    @property
    def of_physical(self) -> Spread:
        """Ours over the physical limit, round by round."""
        return self.spread(lambda one: one.ours.runs_per_s / one.physical)

    def as_json(self) -> dict[str, object]:
        """Everything, with each round's own figures."""
        named: dict[str, Callable[[Round], float]] = {
            "runs_per_s": lambda one: one.ours.runs_per_s,
            "physical_per_s": lambda one: one.physical,
            "commands_per_run": lambda one: one.ours.commands_per_run,
            "scripts_per_run": lambda one: one.ours.server.scripts / one.ours.runs,
            "socket_reads_per_run": lambda one: one.ours.server.reads / one.ours.runs,
            "net_bytes_per_run": lambda one: (one.ours.server.bytes_in + one.ours.server.bytes_out) / one.ours.runs,
            "bytes_per_run": lambda one: one.ours.bytes_per_run,
            "log_bytes_per_run": lambda one: one.ours.server.log_bytes / one.ours.runs,
        }
        told: dict[str, object] = {"runs": self.rounds[0].ours.runs, "sent_per_run": round(self.sent_per_run, 2)}
        told |= {name: self.spread(of).as_json() for name, of in named.items()}
        told["share_of_physical"] = self.of_physical.as_json()
        if self.bare is not None and self.of_bare is not None:
            told |= {"bare_loop_per_s": self.bare.as_json(), "share_of_bare_loop": self.of_bare.as_json()}
        told["cpu_ms_per_run"] = {name: spread.as_json() for name, spread in self.cpu.items()}
        told["resident_mb"] = {
            name: round(max(one.ours.memory[name] for one in self.rounds) / 1e6, 1)
            for name in self.rounds[0].ours.memory
        }
        return told

    @property
    def cpu(self) -> dict[str, Spread]:
        """Processor milliseconds a run, by whose they are, and of all."""
        each = [one.ours.cpu_ms_per_run for one in self.rounds]
        return {name: Spread.of(one[name] for one in each) for name in each[0]}


@dataclass(slots=True)
class PeerRates:
    """One queue: its rounds, or why there are none."""

    version: str
    rounds: list[JobRate] = field(default_factory=list)
    unable: Unable | None = None

    @property
    def rate(self) -> Spread | None:
        """Jobs a second; None: it did not run through."""
        return None if self.unable is not None else Spread.of(one.jobs_per_s for one in self.rounds)

    def as_json(self) -> dict[str, object]:
        """With the error, where there is one."""
        if self.unable is not None:
            return {"version": self.version, "error": self.unable.error}
        return {
            "version": self.version,
            "jobs_per_s": Spread.of(one.jobs_per_s for one in self.rounds).as_json(),
            "commands_per_job": Spread.of(one.server.commands / one.jobs for one in self.rounds).as_json(),
            "bytes_per_job": Spread.of(one.server.memory / one.jobs for one in self.rounds).as_json(),
            "cpu_ms_per_job": Spread.of(one.cpu_ms_per_job for one in self.rounds).as_json(),
        }


@dataclass(slots=True)
class Report:
    """All of it. What was not asked for is empty."""

    runs: int
    workers: int
    """The larger number of worker processes: what the first figures and the peers are about."""
    rounds: int
    throughput: list[Throughput] = field(default_factory=list)
    calls: CallRates | None = None
    startup: StartTimes | None = None
    latency: Latency | None = None
    recovery: Recovery | None = None
    distance: tuple[Distance, ...] = ()
    flat: Flat | None = None
    peers: dict[str, PeerRates] = field(default_factory=dict)
    machine: Mapping[str, object] = field(default_factory=this_machine)
    """As it was before anything was measured."""

    def of(self, kind: Kind) -> Throughput | None:
        """The kind's figures with the larger number of workers."""
        found = (one for one in self.throughput if one.kind is kind and one.workers == self.workers)
        return next(found, None)

    def as_json(self) -> dict[str, object]:
        """The first names are those of no-op runs; null where these were not run."""
        noop = self.of(Kind.NOOP)
        bare = None if noop is None else noop.bare
        share = None if noop is None else noop.of_bare
        return {
            "runs": self.runs,
            "workers": self.workers,
            "rounds": self.rounds,
            "runs_per_s": None if noop is None else round(noop.rate.median, 1),
            "bare_loop_per_s": None if bare is None else round(bare.median, 1),
            "share_of_bare_loop": None if share is None else round(share.median, 3),
            "commands_per_run": _median(noop, lambda one: one.ours.commands_per_run, 1),
            "bytes_per_run": _median(noop, lambda one: one.ours.bytes_per_run, 0),
            "kinds": self._kinds(),
            "machine": dict(self.machine),
        }

    def _kinds(self) -> dict[str, object]:
        kinds: dict[str, dict[str, object]] = {}
        for one in self.throughput:
            kinds.setdefault(one.kind.value, {})[str(one.workers)] = one.as_json()
        told: dict[str, object] = dict(kinds)
        if self.calls is not None:
            told["calls"] = {
                "calls_per_s": Spread.of(self.calls.ours).as_json(),
                "bare_per_s": Spread.of(self.calls.bare).as_json(),
                "share_of_bare": ratios(self.calls.ours, self.calls.bare).as_json(),
                "cpu_us_per_call": Spread.of(self.calls.cpu_us).as_json(),
            }
        if self.startup is not None:
            told["startup"] = self.startup.as_json()
        if self.latency is not None:
            told["latency"] = self.latency.as_json()
        if self.recovery is not None:
            told["recovery"] = self.recovery.as_json()
        if self.distance:
            told["distance"] = [one.as_json() for one in self.distance]
        if self.flat is not None:
            told["flat"] = self.flat.as_json()
        if self.peers:
            told["peers"] = {name: rates.as_json() for name, rates in self.peers.items()}
        return told


def traffic_of(cost: Cost, sent_per_run: float) -> Traffic:
    """What a run sent and was sent."""
    return Traffic(sent_per_run, cost.server.bytes_in / cost.runs, cost.server.bytes_out / cost.runs)


def _median(one: Throughput | None, of: Callable[[Round], float], digits: int) -> float | None:
    return None if one is None else round(statistics.median(of(each) for each in one.rounds), digits)
