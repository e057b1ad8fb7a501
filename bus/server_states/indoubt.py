"""The state of fence indoubt as it stands on the server."""

from __future__ import annotations

from bus.server_states.read import Read, family

__all__ = ["state"]

_OUTCOMES = {"none": "none", "prepared": "prepared", "COMMIT": "COMMIT", "undo": "REJECT", "never": "REJECT"}


def state(read: Read) -> dict[str, object]:
    """See `bus.server_state`. Whether a reservation is live is told by the batch's own clock, which a vector's has."""
    pairs = {
        f"{run}/{key}@{epoch}": packed.partition(" ")[0]
        for run, row in read.runs.items()
        for name, packed in family(row, "i.p:").items()
        for epoch, _, key in [name.partition(":")]
    }
    return {
        "outcomes": {pair: _OUTCOMES[outcome] for pair, outcome in pairs.items()},
        "slots": _live(read),
        "epochs": {run: int(row["i.epoch"]) for run, row in read.runs.items() if "i.epoch" in row},
        "compensations": sorted((pair for pair, outcome in pairs.items() if outcome == "undo"), key=str.encode),
    }


def _live(read: Read) -> dict[str, str]:
    now = int(read.batch["clock"])
    held = {}
    for slot, packed in read.slots.items():
        since, ttl, pair = packed.split(" ", 2)
        if now - int(since) < int(ttl):
            held[slot] = pair
    return held
