"""The state of fence transcript as it stands on the server."""

from __future__ import annotations

from bus.chain import EMPTY_HEAD
from bus.server_states.read import Read, family

__all__ = ["state"]


def state(read: Read) -> dict[str, object]:
    """See `bus.server_state`."""
    granted = {run: row for run, row in read.runs.items() if "t.gen" in row}
    return {
        "transcripts": {
            run: {
                "events": list(read.payloads[run]),
                "head": row.get("t.head", EMPTY_HEAD),
                "sealed": "t.sealed" in row,
                "live": "t.lease" in row,
                "unresolved": sorted(int(seq) for seq in family(row, "t.i:")),
            }
            for run, row in granted.items()
        },
        "dead_letters": [{**letter, "seq": int(letter["seq"])} for letter in read.dead],
    }
