"""A closed batch, frozen in a file: what a later one is compared with, kept where the suite is kept.

    {
     "format": "evalbus-snapshot", "version": 1,
     "batch", "plane", "suite": {"name", "digest"}, "candidate",
     "bins": [in the order of the suite: the first passes], "gate": {rules},
     "tokens": {spent, durable, budget, estimated},
     "some_of": {runs of the suite, chosen}, where it had some of the suite's cases only,
     "snapshot_id": SHA-256 of the canonical spelling of
     "snapshot": {accepted, bins, holes, intended, quorum, rows},
     "digest": SHA-256 of the canonical spelling of all the rest
    }

The snapshot proves itself: it is spelt and hashed again when it is read, and `snapshot_id` is what the batch's close
has printed. What stands beside it (which bin passes, the rules, the tokens) is covered by `digest`: an edit is found,
but not one by somebody who makes the digest anew. It is believed as the place is where the file is kept.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bus.errors import InputError, ViolationError
from bus.port import BatchStatus
from bus.snapshot import ScoreRow, Snapshot
from bus.types import BatchId, Digest, Plane, RunId
from workers.brief import brief
from workers.files import write_whole
from workers.gating.rules import GateRules
from workers.results.outcome import Outcome, Tokens, model_of

__all__ = ["FORMAT", "Frozen", "freeze", "frozen"]

FORMAT, VERSION = "evalbus-snapshot", 1
_REMEDY = "a file that `evalbus gate BATCH --freeze FILE` wrote"


@dataclass(frozen=True, slots=True)
class Frozen:
    """A closed batch with its names."""

    outcome: Outcome
    snapshot: Snapshot
    suite: str
    suite_digest: str
    candidate: str
    gate: Mapping[str, Any]
    """The rules that it declared."""


def freeze(one: Frozen, file: Path) -> None:
    """Write it, whole or not at all. Raises InputError."""
    outcome, tokens = one.outcome, one.outcome.tokens
    if outcome.status is not BatchStatus.CLOSED:
        raise InputError(f"batch {outcome.batch!r} has not closed: there is no snapshot to freeze")
    told = {
        "format": FORMAT,
        "version": VERSION,
        "batch": outcome.batch,
        "plane": outcome.plane.value,
        "suite": {"name": one.suite, "digest": one.suite_digest},
        "candidate": one.candidate,
        "bins": list(one.snapshot.bins),
        "gate": dict(one.gate),
        "tokens": {
            "spent": tokens.spent,
            "durable": tokens.durable,
            "budget": tokens.budget,
            "estimated": tokens.estimated,
        },
        **({} if outcome.first_of is None else {"some_of": {"runs": outcome.first_of, "chosen": outcome.chosen}}),
        "snapshot_id": one.snapshot.snapshot_id,
        "snapshot": json.loads(one.snapshot.canonical_bytes()),
    }
    told["digest"] = _digest_of(told)
    write_whole(file, json.dumps(told, indent=1, ensure_ascii=False) + "\n")


def frozen(data: bytes, name: str) -> Frozen:
    """Read one; `name` is the file's in messages.

    Raises InputError for what is no snapshot file, ViolationError for one whose content has another name.
    """
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or said.get("format") != FORMAT:
        raise InputError("is neither a history nor a snapshot of a batch", file=name, remedy=_REMEDY)
    if said.get("version") != VERSION:
        raise InputError(f"is of version {json.dumps(said.get('version'))[:20]}, not {VERSION}", file=name)
    try:
        read = _read(said, name)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(
            "is no whole snapshot: a field is missing, or of another kind", file=name, remedy=_REMEDY
        ) from None
    if said.get("digest") != _digest_of(said):
        raise ViolationError(f"{name}: what stands beside its snapshot is not what was frozen: it was edited")
    return read


def _digest_of(told: Mapping[str, Any]) -> str:
    """Of everything but the digest itself."""
    rest = {name: value for name, value in told.items() if name != "digest"}
    return hashlib.sha256(_spelt(rest)).hexdigest()


def _spelt(value: Mapping[str, Any]) -> bytes:
    """JSON in the one spelling that is hashed, as `Snapshot.canonical_bytes` has it."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _read(said: Mapping[str, Any], name: str) -> Frozen:
    content, tokens, suite, some_of = said["snapshot"], said["tokens"], said["suite"], said.get("some_of")
    bins = {_text(bin_): int(content["bins"][bin_]) for bin_ in said["bins"]}
    snapshot = Snapshot(
        intended=int(content["intended"]),
        quorum=int(content["quorum"]),
        bins=bins,
        holes={RunId(_text(run)): _text(why) for run, why in content["holes"]},
        rows=tuple(_row(*row) for row in content["rows"]),
    )
    if _spelt(content) != snapshot.canonical_bytes() or said["snapshot_id"] != snapshot.snapshot_id:
        named = brief(str(said["snapshot_id"]), 64)
        raise ViolationError(f"{name}: the snapshot in it is not the one that it names, {named}: it was edited")
    _check(snapshot, name)
    outcome = Outcome(
        batch=_name(said["batch"]),
        plane=Plane(said["plane"]),
        status=BatchStatus.CLOSED,
        snapshot_id=Digest(snapshot.snapshot_id),
        intended=snapshot.intended,
        quorum=snapshot.quorum,
        accepted=snapshot.accepted,
        bins=snapshot.bins,
        holes=dict(sorted(Counter(snapshot.holes.values()).items())),
        hole_runs=snapshot.holes,
        hole_details={},
        rejects={},
        runs={row.run: row.bin for row in snapshot.rows},
        tokens=Tokens(
            _count(tokens["spent"]),
            _count(tokens["durable"]),
            None if tokens["budget"] is None else _count(tokens["budget"]),
            _count(tokens["estimated"]),
        ),
        rules=GateRules.from_mapping(said["gate"]),
        first_of=None if some_of is None else _count(some_of["runs"]),
        chosen=some_of is not None and bool(some_of["chosen"]),
        model=model_of(_text(said["candidate"])),
    )
    names = _text(suite["name"]), _text(suite["digest"]), _text(said["candidate"])
    return Frozen(outcome, snapshot, *names, said["gate"])


def _row(run: object, digest: object, epoch: int, bin_: object, value: object) -> ScoreRow:
    return ScoreRow(RunId(_text(run)), _text(digest), epoch, _text(bin_), _text(value))


def _name(value: object) -> BatchId:
    if not re.fullmatch(r"[A-Za-z0-9._-]+", _text(value)):
        raise ValueError(value)
    return BatchId(_text(value))


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(value)
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _check(snapshot: Snapshot, name: str) -> None:
    """Counts that its own rows do not give, a run twice: hashed as it stands, and yet no set that could be closed."""
    runs = [row.run for row in snapshot.rows] + list(snapshot.holes)
    counted = Counter(row.bin for row in snapshot.rows)
    is_a_set = len(set(runs)) == len(runs) == snapshot.intended
    if (
        not is_a_set
        or {bin_: counted[bin_] for bin_ in snapshot.bins} != snapshot.bins
        or counted.keys() - snapshot.bins
    ):
        raise ViolationError(f"{name}: its counts are not those of its rows")
