"""The state of fence admission as it stands on the server."""

from __future__ import annotations

from bus.server_states.read import Read, family

__all__ = ["state"]


def state(read: Read) -> dict[str, object]:
    """See `bus.server_state`."""
    return {
        "in_flight": int(read.desk.get("in_flight", "0")),
        "live": sorted(
            step
            for row in read.runs.values()
            for step, lease in family(row, "d.live:").items()
            if f"d.past:{lease}" not in row
        ),
        "committed": {
            step: row.get(f"d.what:{step}") or row["h.digest"]
            for row in read.runs.values()
            for step in family(row, "d.done:")
        },
    }
