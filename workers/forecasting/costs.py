"""What things cost in a fleet: seconds of the server, times of the protocol. Defaults, or a table of your own.

    [server]                       # seconds of the server's one thread, per command
    claim = 0.00012
    [times]                        # seconds
    replace = 60.0
    [worker]                       # seconds of a worker's processor
    run = 0.0005

A file of `evalbus bench --json` will do as well: then server and workers take what they were measured to take. The
server's defaults are what one such measurement said of its scripts: 60 to 120 µs of Lua each, reads a tenth of that.
Times are the roles' own: see the modules that are named.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from bus.errors import InputError

__all__ = ["Costs", "Server", "Times", "Worker", "read_costs"]

_BENCH: Final = "evalbus bench --kind noop,model --json FILE"


@dataclass(frozen=True, slots=True)
class Server:
    """Seconds of the server's one thread."""

    admit: float = 0.000_12
    """A run let in, as one of many in a command."""
    claim: float = 0.000_12
    append: float = 0.000_09
    open_call: float = 0.000_12
    flush: float = 0.000_06
    bind_call: float = 0.000_12
    seal: float = 0.000_12
    score_claim: float = 0.000_09
    score: float = 0.000_12
    heartbeat: float = 0.000_06
    read: float = 0.000_01
    """A read of a stream, also one that finds nothing."""

    def of_run(self, calls: int) -> float:
        """A run that nothing happens to, from its admission to its score."""
        call = self.open_call + self.flush + self.bind_call
        return self.admit + 2 * self.read + self.claim + calls * call + self.seal + self.score_claim + self.score


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds."""

    poll: float = 0.5
    """Between two reads that find nothing (`workers.intake`)."""
    beats: float = 3.0
    """Heartbeats in a lease time (`workers.consumer`)."""
    scans: float = 5.0
    """Looks for entries of silent consumers in a lease time, by each worker (`workers.intake`)."""
    replace: float = 60.0
    """Until a machine that was taken away is replaced: to be found out for your pool."""


@dataclass(frozen=True, slots=True)
class Worker:
    """Seconds of a worker's processor: it has one, whatever its slots."""

    run: float = 0.0
    call: float = 0.0
    """A model call more."""

    def of_run(self, calls: int) -> float:
        """A run with so many calls."""
        return self.run + calls * self.call


@dataclass(frozen=True, slots=True)
class Costs:
    """All of them."""

    server: Server = Server()
    times: Times = Times()
    worker: Worker = Worker()


def read_costs(file: Path) -> Costs:
    """A table of costs, what it does not name is as above; or, `.json`, the figures of a bench. Raises InputError."""
    if file.suffix == ".json":
        return _of_bench(file)
    try:
        told = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=file) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is no TOML: {error}", file=file) from None
    unknown = told.keys() - {"server", "times", "worker"}
    if unknown:
        known = "[server], [times] and [worker] are known"
        raise InputError(f"has no table {sorted(unknown)[0]!r}", file=file, remedy=known)
    return Costs(
        replace(Server(), **_numbers(told.get("server", {}), "server", {one.name for one in fields(Server)}, file)),
        replace(Times(), **_numbers(told.get("times", {}), "times", {one.name for one in fields(Times)}, file)),
        replace(Worker(), **_numbers(told.get("worker", {}), "worker", {one.name for one in fields(Worker)}, file)),
    )


_CALL: Final = ("open_call", "flush", "bind_call")


def _of_bench(file: Path) -> Costs:
    """What `evalbus bench --json` measured of no-op runs and of runs with one model call.

    A step's share of its run is as in the defaults; the run's whole is the measured one. A call's is the difference.
    """
    try:
        kinds = json.loads(file.read_text(encoding="utf-8"))["kinds"]
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=file) from None
    except ValueError as error:
        raise InputError(f"is no JSON: {error}", file=file) from None
    except (KeyError, TypeError):
        raise InputError("is no file of evalbus bench", file=file, remedy=_BENCH) from None
    base, usual = Server(), Server().of_run(0)
    run, per_call = _cpu(kinds, "noop", "server", file), _cpu(kinds, "model", "server", file)
    own, own_call = _cpu(kinds, "noop", "worker", file), _cpu(kinds, "model", "worker", file)
    call = max(per_call - run, 0.0) / (base.of_run(1) - usual)
    scaled = {
        one.name: getattr(base, one.name) * (call if one.name in _CALL else run / usual)
        for one in fields(Server) if one.name not in ("append", "heartbeat")
    }  # fmt: skip
    return Costs(replace(base, **scaled), Times(), Worker(own, max(own_call - own, 0.0)))


def _cpu(kinds: Any, kind: str, whose: str, file: Path) -> float:  # noqa: ANN401 - whatever the file holds
    """Seconds a run, at the largest number of workers that was measured."""
    try:
        most = max(kinds[kind], key=int)
        median = kinds[kind][most]["cpu_ms_per_run"][whose]["median"]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(f"has no processor time of the {whose} in {kind} runs", file=file, remedy=_BENCH) from None
    if isinstance(median, bool) or not isinstance(median, int | float) or median <= 0:
        raise InputError(f"kinds.{kind}: the processor time of the {whose} is no number of ms", file=file)
    return median / 1000


def _numbers(table: object, name: str, known: set[str], file: Path) -> dict[str, float]:
    if not isinstance(table, dict):
        raise InputError(f"{name} is no table", file=file, remedy=f"write [{name}]")
    for field, value in table.items():
        if field not in known:
            raise InputError(f"{name}.{field}: unknown", file=file, remedy=f"one of {', '.join(sorted(known))}")
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise InputError(f"{name}.{field}: is no number of seconds", file=file)
    return {field: float(value) for field, value in table.items()}
