"""What a role's process is told: read by the process itself, written by the command line and the fleet."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum

from bus.types import Durability, Plane

__all__ = ["BLOCKED", "STOPPED", "Role", "RoleOptions"]

STOPPED = 75
"""Exit code by which a fleet's process says that a signal stopped it: its batch has not ended (EX_TEMPFAIL)."""
BLOCKED = 70
"""Exit code of a process whose event loop the suite's code holds (EX_SOFTWARE): see `workers.processes.watchdog`."""


class Role(StrEnum):
    """What a process does."""

    PLANNER = "planner"
    WORKER = "worker"
    SCORER = "scorer"


@dataclass(frozen=True, slots=True)
class RoleOptions:
    """How a role is started. Paths are text, so that the options travel to a child process as JSON."""

    role: Role
    url: str | None = None
    home: str | None = None
    plane: Plane = Plane.LIVE
    suite: str | None = None
    batch: str | None = None
    name: str | None = None
    slots: int | None = None
    artifacts: str | None = None
    archive: str | None = None
    """A planner's: the directory to which the history goes while the batch runs."""
    segment: int | None = None
    """Entries in one file there."""
    fetch_suite: bool = False
    """Take the suite from the batch's signed bundle."""
    durability: Durability = Durability.STANDARD
    """What is waited for before an answer counts."""
    metrics: str | None = None
    """Where Prometheus metrics are served: PORT or HOST:PORT."""
    check: bool = True
    """Look first whether the server is fit; a fleet's starter has done so already."""

    def as_json(self) -> str:
        """For `python -m workers.role`."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> RoleOptions:
        """Read what `as_json` wrote."""
        fields = json.loads(text)
        named = {"role": Role, "plane": Plane, "durability": Durability}
        return cls(**fields | {name: kind(fields[name]) for name, kind in named.items() if name in fields})
