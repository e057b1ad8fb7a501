"""The state of fence workspace as it stands on the server."""

from __future__ import annotations

from bus.server_states.read import Read, family
from bus.types import Verb

__all__ = ["state"]


def state(read: Read) -> dict[str, object]:
    """See `bus.server_state`. A verdict that was taken off is in the history only, with what took it off."""
    return {
        "steps": {
            step: {"gen": int(gen), "tree_hash": row[f"w.tree:{step}"], "verdict": row.get(f"w.verdict:{step}")}
            for row in read.runs.values()
            for step, gen in family(row, "w.gen:").items()
        },
        "cleared": [
            dict(part.args["cleared"])
            for entry in read.history
            for part in entry.parts
            if part.fence == "workspace" and part.verb == Verb.COMMIT and "cleared" in part.args
        ],
    }
