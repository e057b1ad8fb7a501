"""The state of fence outbox as it stands on the server."""

from __future__ import annotations

import json

from bus.server_states.read import Fields, Read, family

__all__ = ["state"]

_UNDO = "~undo"


def state(read: Read) -> dict[str, object]:
    """See `bus.server_state`."""
    return {
        "intents": {
            intent_id: _intent(row, intent_id, packed)
            for row in read.runs.values()
            for intent_id, packed in family(row, "o.i:").items()
        },
    }


def _intent(row: Fields, intent_id: str, packed: str) -> dict[str, object]:
    state, gen, _since, _executor = packed.split(" ", 3)
    return {
        "gen": int(gen),
        "state": state,
        "tool": row[f"o.t:{intent_id}"],
        "args": json.loads(row[f"o.a:{intent_id.removesuffix(_UNDO)}"]),
        "observation": row.get(f"o.r:{intent_id}"),
    }
