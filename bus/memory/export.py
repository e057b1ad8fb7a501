"""The export of a batch in memory: the same lines that `evalbus export` writes of one on a server.

The bus in memory keeps each part with all its arguments, so there is nothing to put back in place; but for the
declaration, which on a server is what `create` is sent, and in memory is the batch itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from bus.contract import CONTRACT
from bus.envelopes import SCHEMA
from bus.export_format import Line, chained, header, spelt
from bus.memory.batch import MemoryBatch
from bus.port import BatchInfo, BatchStatus
from bus.recorded import Part, Recorded
from bus.snapshot import ScoreRow, Snapshot
from bus.types import Plane, RunId

__all__ = ["exported"]

_FIRST_CHAIN: Final = "0" * 64


def exported(batch: MemoryBatch, plane: Plane = Plane.LIVE) -> Iterator[bytes]:
    """The lines, newline included."""
    info = BatchInfo(batch.spec, BatchStatus(batch.histogram.status.value), plane, batch.incarnation)
    yield f"{spelt(header(plane, batch.spec.batch, info))}\n".encode()
    count, head = 0, _FIRST_CHAIN
    for entry in batch.history:
        envelope = _envelope(batch, entry)
        for number, part in enumerate(entry.parts, start=1):
            args, answer = _named(part)
            text, head = chained(
                head, Line(f"{entry.id}/{number}", part.fence, part.op, part.verb, part.reason, envelope, args, answer)
            )
            yield f'{text[:-1]},"chain":"{head}"}}\n'.encode("utf-8", "surrogatepass")
            count += 1
    yield f"{spelt({'entries': count, 'head': head, 'snapshot': _snapshot(batch)})}\n".encode()


def _envelope(batch: MemoryBatch, entry: Recorded) -> Mapping[str, Any]:
    envelope = {"schema": SCHEMA, **entry.envelope}
    if entry.command == "run.create":
        declared = json.dumps(batch.spec.as_fields(), sort_keys=True, ensure_ascii=False)
        envelope |= {"spec": declared, "incarnation": batch.incarnation}
    return envelope


def _named(part: Part) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments and the answer, of the fields that the contract has."""
    fence = CONTRACT.get(part.fence)
    if fence is None or part.op not in fence.ops:
        return dict(part.args), dict(part.answer)
    contract = fence.ops[part.op]
    args = {arg.name: part.args[arg.name] for arg in contract.args if part.args.get(arg.name) is not None}
    return args, {name: value for name, value in part.answer.items() if name in contract.answers}


def _snapshot(batch: MemoryBatch) -> dict[str, Any] | None:
    histogram = batch.histogram
    if not batch.ended:
        return None
    rows = [ScoreRow(RunId(row.run), row.digest, row.epoch, row.bin, row.value) for row in histogram.rows.values()]
    holes = {RunId(run): why for run, why in histogram.holes.items()}
    taken = Snapshot(
        batch.spec.intended, histogram.quorum, histogram.counts(), holes, tuple(sorted(rows, key=lambda row: row.run))
    )
    content: dict[str, Any] = json.loads(taken.canonical_bytes())
    return content | {"snapshot_id": taken.snapshot_id}
