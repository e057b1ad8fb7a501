"""The state of fence ledger as it stands on the server."""

from __future__ import annotations

from bus.server_states.read import Read, family

__all__ = ["state"]


def state(read: Read) -> dict[str, object]:
    """See `bus.server_state`."""
    spent, durable = (int(read.batch.get(field, "0")) for field in ("spent", "durable"))
    return {
        "spent": spent,
        "durable": durable,
        "orphan": spent - durable,
        "reserved": int(read.batch.get("reserved", "0")),
        "attempts": {
            name: _attempt(packed) for row in read.runs.values() for name, packed in family(row, "l.a:").items()
        },
    }


def _attempt(packed: str) -> dict[str, object]:
    state, _estimate, billed, durable, watermark, *_ = packed.split(" ")
    return {"state": state, "billed": int(billed), "durable": int(durable), "watermark": int(watermark)}
