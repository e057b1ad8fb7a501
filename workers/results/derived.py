"""What a batch came to, by its history alone: as replay has derived it, with no look at any server.

A batch in partitions has several. Each is derived by itself; `joined` puts together what they come to, as
`workers.results.whole` does with what a server says.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from bus.errors import InputError, ViolationError
from bus.export_format import header as header_of
from bus.partitions import root_of, status_of, whole_spec
from bus.port import BatchInfo, BatchSpec, BatchStatus
from bus.replay.lines import Footer, Header
from bus.replay.replayed import Replay, Replayed
from bus.replay.telling import Told
from bus.snapshot import Snapshot
from bus.types import BatchId, Digest, Plane, RunId
from workers.gating.rules import GateRules
from workers.results.outcome import Outcome, Tokens, model_of

__all__ = ["Derived", "Deriving", "derived_outcome", "joined", "snapshot_of"]

_Name = TypeVar("_Name", bound=str)
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Derived:
    """A history that holds, or the partitions of one batch together."""

    header: Header
    declared: Mapping[str, Any]
    """As the entry says it that declares the batch."""
    found: Replayed
    """Of partitions together without a head: each has a chain of its own."""
    parts: tuple[Derived, ...] = field(default=())
    """The partitions in their order; none for a history that stands by itself."""

    @property
    def source(self) -> str:
        """How messages name the batch."""
        return f"batch {self.header.batch}"


class Deriving:
    """A history on its way: a replay, and what it declared."""

    def __init__(self, source: str) -> None:
        """`source`: how messages name the file, or the batch."""
        self.replay = Replay(source)
        self._header: Header | None = None
        self._declared: Mapping[str, Any] = {}

    def feed(self, raw: bytes) -> Header | Told | Footer:
        """The next line. Raises as `Replay.feed`."""
        said = self.replay.feed(raw)
        if isinstance(said, Header):
            self._header = said
        elif not self._declared and isinstance(said, Told) and _declares(said):
            self._declared = json.loads(said.envelope["spec"])
        return said

    def finish(self) -> Derived:
        """There are no more lines. Raises as `Replay.finish`."""
        found = self.replay.finish()
        assert self._header is not None, "a history without its first line is none"
        return Derived(self._header, self._declared, found)


def _declares(told: Told) -> bool:
    return (told.fence, told.op, told.verb) == ("run", "create", "commit")


def joined(histories: Sequence[Derived], *, alone: bool | None = None) -> Derived:
    """One history as it is; several, which are partitions of one batch, together. Open while one is not there yet.

    `alone`: whether a single one stands for itself, as it does unless the others are known to be missing yet. Raises
    InputError for histories of several batches; ViolationError where two of them have the same run.
    """
    if len(histories) == 1 and alone is not False:
        return histories[0]
    specs = [_spec_of(one) for one in histories]
    numbers = {spec.part.number for spec in specs if spec.part is not None}
    same = {(root_of(spec.batch), spec.suite_digest, spec.part and spec.part.of) for spec in specs}
    if len(numbers) != len(specs) or len(same) != 1:
        raise InputError(
            f"{', '.join(one.source for one in histories)} are not the partitions of one batch",
            remedy="files of one export, each under the name that it got there",
        )
    whole, of = whole_spec(specs), max(spec.part.of for spec in specs if spec.part is not None)
    found = [one.found for one in histories]
    status = status_of([BatchStatus(one.status) for one in found], sum(len(one.rows) for one in found), whole, of)
    rows = {run: row for one in found for run, row in one.rows.items()}
    holes = {run: why for one in found for run, why in one.holes.items()}
    if len(rows.keys() | holes.keys()) != sum(len(one.rows) + len(one.holes) for one in found):
        raise ViolationError(f"batch {whole.batch}: two of its partitions have the same run")

    def total(name: str) -> int:
        return sum(int(getattr(one, name)) for one in found)

    def family(name: str) -> dict[str, int]:
        return dict(sum((Counter(getattr(one, name)) for one in found), Counter[str]()))

    plane = Plane(histories[0].header.plane)
    first = header_of(plane, whole.batch, BatchInfo(whole, status, plane, ""))
    header = Header(*(first[name] for name in ("batch", "plane", "suite", "policy")))  # type: ignore[arg-type]
    bins = {name: sum(one.bins.get(name, 0) for one in found) for name in whole.bins}
    both = Replayed(
        batch=whole.batch,
        plane=plane.value,
        entries=total("entries"),
        head="",
        decisions=family("decisions"),
        refusals=family("refusals"),
        status=status.value,
        bins=bins,
        holes=holes,
        rows=rows,
        snapshot_id=None,
        spent=total("spent"),
        durable=total("durable"),
        reserved=total("reserved"),
        effects_open=total("effects_open"),
        stuck=total("stuck"),
    )
    snapshot = snapshot_of(header, both)
    both = replace(both, snapshot_id=None if snapshot is None else snapshot.snapshot_id)
    return Derived(header, histories[0].declared, both, tuple(histories))


def _spec_of(one: Derived) -> BatchSpec:
    try:
        return BatchSpec.from_json(json.dumps(one.declared))
    except (TypeError, ValueError) as error:
        raise InputError(f"{one.source} is declared in a way that this release does not know") from error


def snapshot_of(header: Header, found: Replayed) -> Snapshot | None:
    """The closed set; None while the batch is open."""
    if not BatchStatus(found.status).ended:
        return None
    policy = header.policy
    bins = {name: found.bins.get(name, 0) for name in policy["bins"]}
    rows = tuple(found.rows[run] for run in sorted(found.rows))
    return Snapshot(policy["intended"], policy["quorum"], bins, _sorted(found.holes), rows)


def derived_outcome(derived: Derived, details: Mapping[RunId, str] | None = None, estimated: int = 0) -> Outcome:
    """`details`: what was said at the ends of its runs. `estimated`: of its tokens those that are a guess."""
    found, policy, first_of = derived.found, derived.header.policy, derived.declared.get("first_of")
    status = BatchStatus(found.status)
    return Outcome(
        batch=BatchId(found.batch),
        plane=Plane(found.plane),
        status=status,
        snapshot_id=Digest(found.snapshot_id) if found.snapshot_id and status is BatchStatus.CLOSED else None,
        intended=policy["intended"],
        quorum=policy["quorum"],
        accepted=len(found.rows),
        bins={name: found.bins.get(name, 0) for name in policy["bins"]},
        holes=_sorted(Counter(found.holes.values())),
        hole_runs=_sorted(found.holes) if status.ended else {},
        hole_details=(details or {}) if status.ended else {},
        rejects=_sorted(found.refusals),
        runs={run: found.rows[run].bin for run in sorted(found.rows)} if status.ended else {},
        tokens=Tokens(found.spent, found.durable, policy["limits"].get("budget"), estimated),
        rules=GateRules.from_mapping(policy["gate"]),
        first_of=first_of if isinstance(first_of, int) else None,
        chosen=derived.declared.get("cases") is not None,
        model=model_of(str(derived.declared.get("candidate", ""))),
        judge=model_of(str(derived.declared.get("judge", ""))),
    )


def _sorted(by_name: Mapping[_Name, _Value]) -> dict[_Name, _Value]:
    return {name: by_name[name] for name in sorted(by_name)}
