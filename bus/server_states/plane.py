"""The state of fence plane as it stands on the server."""

from __future__ import annotations

from collections.abc import Iterator

from bus.server_states.read import Read, family
from bus.types import Plane

__all__ = ["state"]


def state(read: Read) -> dict[str, object]:
    """See `bus.server_state`."""
    rows = {key: body or row["t.head"] for row in read.runs.values() for key, body in family(row, "p.row:").items()}
    crossed: dict[str, list[str]] = {plane.value: [] for plane in Plane}
    for admission, key in _crossed(read):
        _, _, admitted = read.planes[f"a:{admission}"].partition(" ")
        crossed[_plane_of(admitted)].append(key)
    return {
        "rows": rows,
        "live_keys": sorted(key for key in rows if _plane_of(key) == "live"),
        "in_flight": int(read.planes.get("in_flight", "0")),
        "crossed": crossed,
        "undo": {plane.value: [entry["key"] for entry in read.undos[plane]] for plane in Plane},
    }


def _plane_of(key: str) -> str:
    return key.partition(":")[0]


def _crossed(read: Read) -> Iterator[tuple[str, str]]:
    """Who presented which key that was not its plane's: only the history holds them, each time that they came."""
    for entry in read.history:
        for part in entry.parts:
            if part.fence == "plane" and part.op in ("write", "undo") and part.reason in ("plane_key", "plane_header"):
                presented = {**entry.envelope, **part.args}
                yield presented["admission"], presented["key"]
