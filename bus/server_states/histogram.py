"""The state of fence histogram as it stands on the server."""

from __future__ import annotations

from collections.abc import Sequence

from bus.recorded import Recorded
from bus.server_states.read import Read, family

__all__ = ["state"]


def state(read: Read) -> dict[str, object]:
    """See `bus.server_state`."""
    rows = read.runs
    return {
        "status": read.batch["status"],
        "accepted": int(read.batch.get("accepted", "0")),
        "bins": {name: int(count) for name, count in family(read.batch, "bin:").items()},
        "holes": {run: row["h.why"] for run, row in rows.items() if "h.why" in row},
        "rows": [
            [run, row["h.digest"], int(row["h.epoch"]), row["h.bin"], row["h.value"]]
            for run, row in sorted(rows.items())
            if "h.bin" in row
        ],
        "in_flight": sorted(
            run for run, row in rows.items() if "h.epoch" in row and not {"h.bin", "h.why"} & row.keys()
        ),
        "proposals": _proposals(read.history),
        "snapshot_id": read.batch.get("snapshot"),
    }


def _proposals(history: Sequence[Recorded]) -> list[dict[str, object]]:
    """Bytes that were refused as another run's: only the history holds them, each time that they came."""
    proposals: list[dict[str, object]] = []
    for entry in history:
        if any(part.fence == "histogram" and part.reason == "digest_mismatch" for part in entry.parts):
            proposal = {"run": entry.envelope["run"], "digest": entry.envelope["digest"]}
            if proposal not in proposals:
                proposals.append(proposal)
    return proposals
