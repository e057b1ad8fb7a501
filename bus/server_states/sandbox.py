"""The state of fence sandbox as it stands on the server."""

from __future__ import annotations

from collections.abc import Mapping

from bus.server_states.read import Fields, Read, family

__all__ = ["state"]


def state(read: Read) -> dict[str, object]:
    """See `bus.server_state`. Whether a workspace is live is asked of the batch's own clock."""
    steps = {
        step: packed.split(" ")[0] for row in read.runs.values() for step, packed in family(row, "b.step:").items()
    }
    return {
        "steps": steps,
        "held": {
            name: _on_disk(row, name) if _live(read.batch, packed) else []
            for row in read.runs.values()
            for name, packed in family(row, "b.ws:").items()
        },
        "compensations": sorted(step for step, at in steps.items() if at == "compensated"),
    }


def _live(batch: Fields, packed: str) -> bool:
    _, _, beat = packed.split(" ")
    return beat != "-" and int(batch["clock"]) - int(beat) < int(batch["heartbeat_ms"])


def _on_disk(row: Fields, workspace: str) -> list[str]:
    """The steps of the writes that no acquire has given up, in log order."""
    found: Mapping[int, str] = {
        int(index): step
        for receipt, packed in family(row, "b.log:").items()
        for kept, index, _, step in [packed.split(" ", 3)]
        if kept == "1" and row[f"b.at:{receipt}"] == workspace
    }
    return [found[index] for index in sorted(found)]
