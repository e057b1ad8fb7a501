"""The state of fence join as it stands on the server."""

from __future__ import annotations

from bus.server_states.read import Fields, Read, family

__all__ = ["state"]


def state(read: Read) -> dict[str, object]:
    """See `bus.server_state`."""
    return {
        "remaining": int(read.batch.get("budget", "0")) - int(read.batch.get("window_tokens", "0")),
        "cases": {case: _case(row, text) for row in read.runs.values() for case, text in family(row, "f.c:").items()},
    }


def _case(row: Fields, text: str) -> dict[str, object]:
    standing, number, _, spent, _ = text.split(" ")
    attempts = family(row, f"f.a:{number}:")
    return {
        "state": standing,
        "verdict": "inconclusive" if standing == "ABORTED" else row.get(f"f.v:{number}"),
        "joined": sorted(attempt for attempt, where in attempts.items() if where == "in"),
        "spent": int(spent),
    }
