"""The state of a fence as it stands on the server, in the words of the contract.

The reference models dump their state; this reads the same fields from the rows and streams of a batch, so that the two
can be compared as a whole, and not only answer by answer. Everything comes from where the scripts keep it: what a row
counts is read as the row's count, never counted again here, so that a count that drifts shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bus.chain import EMPTY_HEAD
from bus.history import Recorded, read_history
from bus.keys import BatchKeys
from bus.link import Link
from bus.types import RunId, Verb
from bus.wire import Reply

__all__ = ["read_state"]

Fields = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Read:
    """All of a batch that a fence's state is made of. `runs` holds the rows that exist, by run."""

    batch: Fields
    desk: Fields
    runs: Mapping[RunId, Fields]
    payloads: Mapping[RunId, Sequence[str]]
    dead: Sequence[Fields]
    history: Sequence[Recorded]


async def read_state(fence: str, link: Link, keys: BatchKeys, runs: Sequence[RunId]) -> dict[str, object]:
    """The dump of `fence` for one batch, over the given runs. Raises KeyError for an unknown fence."""
    read = await _read(link, keys, runs)
    return {**_STATES[fence](read), "refusals": _refusals(read.history)}


async def _read(link: Link, keys: BatchKeys, runs: Sequence[RunId]) -> _Read:
    batch, desk, dead, *rest = await link.commands(
        [
            ("HGETALL", keys.batch_row),
            ("HGETALL", keys.desk()),
            ("XRANGE", keys.dead, "-", "+"),
            *(("HGETALL", keys.run(run)) for run in runs),
            *(("XRANGE", keys.transcript(run), "-", "+") for run in runs),
        ]
    )
    rows, events = rest[: len(runs)], rest[len(runs) :]
    return _Read(
        batch=_fields(batch),
        desk=_fields(desk),
        runs={run: _fields(row) for run, row in zip(runs, rows, strict=True) if row},
        payloads={
            run: [_fields(entry[1])["p"] for entry in entries] for run, entries in zip(runs, events, strict=True)
        },
        dead=[_fields(entry[1]) for entry in dead],
        history=[entry async for entry in read_history(link, keys)],
    )


def _fields(flat: Reply) -> dict[str, str]:
    words = [item.decode() for item in flat]
    return dict(zip(words[::2], words[1::2], strict=True))


def _refusals(history: Sequence[Recorded]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for entry in history:
        for part in entry.parts:
            if part.verb in (Verb.REJECT, Verb.REPLAY) and part.reason is not None:
                counts[part.reason] = counts.get(part.reason, 0) + 1
    return counts


def _family(row: Fields, prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}


def _transcript(read: _Read) -> dict[str, object]:
    granted = {run: row for run, row in read.runs.items() if "t.gen" in row}
    return {
        "transcripts": {
            run: {
                "events": list(read.payloads[run]),
                "head": row.get("t.head", EMPTY_HEAD),
                "sealed": "t.sealed" in row,
                "live": "t.lease" in row,
                "unresolved": sorted(int(seq) for seq in _family(row, "t.i:")),
            }
            for run, row in granted.items()
        },
        "dead_letters": [{**letter, "seq": int(letter["seq"])} for letter in read.dead],
    }


def _histogram(read: _Read) -> dict[str, object]:
    rows = read.runs
    return {
        "status": read.batch["status"],
        "accepted": int(read.batch.get("accepted", "0")),
        "bins": {name: int(count) for name, count in _family(read.batch, "bin:").items()},
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


def _judge(read: _Read) -> dict[str, object]:
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
            run: list(range(int(row["j.first"]), int(row["j.epoch"])))
            for run, row in read.runs.items()
            if row.get("j.first") != row.get("j.epoch")
        },
        "replays": int(read.batch.get("replays", "0")),
        "review": sorted(run for run, row in read.runs.items() if "j.review" in row),
    }


def _admission(read: _Read) -> dict[str, object]:
    return {
        "in_flight": int(read.desk.get("in_flight", "0")),
        "live": sorted(step for row in read.runs.values() for step in _family(row, "d.live:")),
        "committed": {step: digest for row in read.runs.values() for step, digest in _family(row, "d.what:").items()},
    }


_STATES: Mapping[str, Callable[[_Read], dict[str, object]]] = {
    "histogram": _histogram,
    "judge": _judge,
    "transcript": _transcript,
    "admission": _admission,
}
