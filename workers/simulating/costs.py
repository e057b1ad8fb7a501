"""What things cost in a fleet: seconds of the server, times of the protocol. Defaults, or a table of your own.

    [server]                       # seconds of the server's one thread, per command
    claim = 0.00012
    [times]                        # seconds
    replace = 60.0

The server's defaults are what the project's own measurement says of its scripts (`evalbus bench`; README, "What it
costs"): 60 to 120 µs of Lua each, reads and acknowledgements a tenth of that. Times are the roles' own: see the modules
that are named.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path

from bus.errors import InputError

__all__ = ["Costs", "Server", "Times", "read_costs"]


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
    """Between two reads that find nothing (`workers.consumer`)."""
    beats: float = 3.0
    """Heartbeats in a lease time (likewise)."""
    scans: float = 5.0
    """Looks for entries of silent consumers in a lease time, by each worker (likewise)."""
    replace: float = 60.0
    """Until a machine that was taken away is replaced: to be found out for your pool."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Both."""

    server: Server = Server()
    times: Times = Times()


def read_costs(file: Path) -> Costs:
    """A table of costs; what it does not name is as above. Raises InputError."""
    try:
        told = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=file) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is no TOML: {error}", file=file) from None
    unknown = told.keys() - {"server", "times"}
    if unknown:
        raise InputError(f"has no table {sorted(unknown)[0]!r}", file=file, remedy="[server] and [times] are known")
    return Costs(
        replace(Server(), **_numbers(told.get("server", {}), "server", {one.name for one in fields(Server)}, file)),
        replace(Times(), **_numbers(told.get("times", {}), "times", {one.name for one in fields(Times)}, file)),
    )


def _numbers(table: object, name: str, known: set[str], file: Path) -> dict[str, float]:
    if not isinstance(table, dict):
        raise InputError(f"{name} is no table", file=file, remedy=f"write [{name}]")
    for field, value in table.items():
        if field not in known:
            raise InputError(f"{name}.{field}: unknown", file=file, remedy=f"one of {', '.join(sorted(known))}")
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise InputError(f"{name}.{field}: is no number of seconds", file=file)
    return {field: float(value) for field, value in table.items()}
