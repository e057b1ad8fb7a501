"""The state of fence judge as it stands on the server."""

from __future__ import annotations

from bus.server_states.read import Read

__all__ = ["state"]


def state(read: Read) -> dict[str, object]:
    """See `bus.server_state`."""
    tokens = {
        run: {"candidate": row["j.candidate"], "judge": row["j.judge"], "epoch": int(row["j.epoch"])}
        for run, row in read.runs.items()
        if "j.epoch" in row
    }
    return {
        "tokens": tokens,
        # A row stands under the token that it was signed with: after the score neither can change.
        "rows": {
            run: {**token, "digest": read.runs[run]["j.digest"]}
            for run, token in tokens.items()
            if "j.digest" in read.runs[run]
        },
        "tombstones": {
            run: list(range(int(row.get("j.first", "1")), int(row["j.epoch"])))
            for run, row in read.runs.items()
            if row.get("j.first", "1") != row.get("j.epoch", "1")
        },
        "replays": int(read.batch.get("replays", "0")),
        "review": sorted(run for run, row in read.runs.items() if "j.review" in row),
    }
