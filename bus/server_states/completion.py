"""The state of fence completion as it stands on the server."""

from __future__ import annotations

from bus.server_states.read import Read, family

__all__ = ["state"]


def state(read: Read) -> dict[str, object]:
    """See `bus.server_state`."""
    granted = {run: row for run, row in read.runs.items() if "c.gen" in row}
    bound: dict[str, object] = {}
    for run, row in granted.items():
        for step, digest in family(row, "c.d:").items():
            gen, _bound, request_id = row[f"c.q:{step}"].split(" ", 2)
            bound[f"{run}/{step}"] = {"request_id": request_id, "gen": int(gen), "digest": digest}
    return {
        "closed": "watermark" in read.batch,
        "runs": {
            run: {
                "live": "c.lease" in row,
                "compute_left": int(row["c.compute"]),
                "model_left": int(row["c.model"]),
                "exhausted": "c.out" in row,
            }
            for run, row in granted.items()
        },
        "bound": bound,
    }
