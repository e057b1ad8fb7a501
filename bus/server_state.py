"""The state of a fence as it stands on the server, in the words of the contract.

The reference models dump their state; this reads the same fields from the rows and streams of a batch, so that the two
can be compared as a whole, and not only answer by answer. Everything comes from where the scripts keep it: what a row
counts is read as the row's count, never counted again here, so that a count that drifts shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bus.events import StoredEvent
from bus.history import read_history
from bus.keys import BatchKeys
from bus.link import Link
from bus.recorded import Recorded
from bus.replies import hash_of
from bus.server_states import (
    admission,
    completion,
    histogram,
    indoubt,
    join,
    judge,
    ledger,
    outbox,
    plane,
    sandbox,
    transcript,
    workspace,
)
from bus.server_states.read import Read
from bus.types import Plane, RunId, Verb

__all__ = ["read_state"]


async def read_state(fence: str, link: Link, keys: BatchKeys, runs: Sequence[RunId]) -> dict[str, object]:
    """The dump of `fence` for one batch, over the given runs. Raises KeyError for an unknown fence."""
    read = await _read(link, keys, runs)
    return {**_STATES[fence](read), "refusals": _refusals(read.history)}


async def _read(link: Link, keys: BatchKeys, runs: Sequence[RunId]) -> Read:
    batch, desk, dead, planes, slots, live, shadow, *rest = await link.commands(
        [
            ("HGETALL", keys.batch_row),
            ("HGETALL", keys.desk()),
            ("XRANGE", keys.dead, "-", "+"),
            ("HGETALL", keys.planes),
            ("HGETALL", keys.slots),
            ("XRANGE", keys.undo(Plane.LIVE), "-", "+"),
            ("XRANGE", keys.undo(Plane.SHADOW), "-", "+"),
            *(("HGETALL", keys.run(run)) for run in runs),
            *(("LRANGE", keys.transcript(run), 0, -1) for run in runs),
        ]
    )
    rows, events = rest[: len(runs)], rest[len(runs) :]
    return Read(
        batch=hash_of(batch),
        desk=hash_of(desk),
        runs={run: hash_of(row) for run, row in zip(runs, rows, strict=True) if row},
        payloads={
            run: [StoredEvent.read(item).payload for item in items] for run, items in zip(runs, events, strict=True)
        },
        dead=[hash_of(entry[1]) for entry in dead],
        planes=hash_of(planes),
        slots=hash_of(slots),
        undos={
            Plane.LIVE: [hash_of(entry[1]) for entry in live],
            Plane.SHADOW: [hash_of(entry[1]) for entry in shadow],
        },
        history=[entry async for entry in read_history(link, keys)],
    )


def _refusals(history: Sequence[Recorded]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for entry in history:
        for part in entry.parts:
            if part.verb in (Verb.REJECT, Verb.REPLAY) and part.reason is not None:
                counts[part.reason] = counts.get(part.reason, 0) + 1
    return counts


_STATES: Mapping[str, Callable[[Read], dict[str, object]]] = {
    "join": join.state,
    "plane": plane.state,
    "completion": completion.state,
    "indoubt": indoubt.state,
    "outbox": outbox.state,
    "ledger": ledger.state,
    "histogram": histogram.state,
    "judge": judge.state,
    "transcript": transcript.state,
    "sandbox": sandbox.state,
    "workspace": workspace.state,
    "admission": admission.state,
}
