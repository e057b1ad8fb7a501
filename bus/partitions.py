"""One batch in several: what a suite with `partitions = N` declares, and how its parts make one result again.

A batch lives in one hash slot, so one primary of a cluster carries it. A partitioned one is declared as N batches,
`<name>.p1` to `<name>.pN`, each with a share of the runs and of every limit, each admitted, driven and closed by itself
like any other. What the user knows by `<name>` is their sum: the same intended runs, and, when all parts have ended,
the accepted set of all of them in the one canonical spelling. So its number is that which an unpartitioned batch with
the same rows would have, and so is the snapshot's id.

The suite's quorum is the whole's. A part's own is one run, the least that there is: a part that has none accepted ends
inconclusive by itself, and counts in the whole with its holes like any other.

Pure: no server, no clock.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Final, TypeVar, cast

from bus.errors import InputError
from bus.types import BatchId
from bus.values import BatchSpec, BatchStatus, Counters, PartOf

__all__ = [
    "MOST_PARTS",
    "added",
    "is_part_of",
    "part_name",
    "put_back",
    "root_of",
    "share",
    "split",
    "status_of",
    "taken_by",
    "whole_spec",
]

T = TypeVar("T")

MOST_PARTS: Final = 64
"""Of one batch."""

_SHARED = ("budget", "capacity", "model_slots", "judge_slots")
"""Of `LIMITS`: amounts. The others are times, numbers of tries, and names."""

_NAMES = {
    "budget": "its budget",
    "capacity": "[shadow] capacity",
    "model_slots": "[model] slots",
    "judge_slots": "[scorer] slots",
}


def part_name(root: BatchId, number: int) -> BatchId:
    """`<root>.p<number>`, from 1."""
    return BatchId(f"{root}.p{number}")


def root_of(batch: BatchId) -> BatchId:
    """Of which batch one of this name would be a part; itself if its name is no part's."""
    return BatchId(re.sub(r"\.p[1-9][0-9]*$", "", batch))


def is_part_of(batch: BatchId, root: BatchId) -> bool:
    """Whether it is called like a part of `root`, or is `root` itself."""
    return batch == root or (root_of(batch) == root and batch != root_of(batch))


def share(amount: int, number: int, of: int) -> int:
    """The part `number` (from 1) of an amount that is dealt out among `of`; the shares add up to it."""
    return amount // of + (number <= amount % of)


def taken_by(part: PartOf | None, items: Sequence[T]) -> Sequence[T]:
    """The runs of a part: dealt out one by one, since cases that stand together tend to cost alike. None: all."""
    return items if part is None else items[part.number - 1 :: part.of]


def put_back(shares: Sequence[Sequence[T]]) -> list[T]:
    """The other way round: what all parts were dealt, in the order that it had before. A share may be short yet."""
    absent = object()
    rounds = zip_longest(*shares, fillvalue=absent)
    return [cast(T, one) for each in rounds for one in each if one is not absent]


def split(spec: BatchSpec, of: int, beside: Mapping[str, int] | None = None) -> list[BatchSpec]:
    """What the parts of a batch declare; the batch's own declaration if `of` is 1.

    `beside`: amounts that are shared too and not declared, as a suite calls them. Raises InputError when there is less
    of something than there are parts: each needs at least one.
    """
    if of == 1:
        return [spec]
    least = {"runs": spec.intended, "bound": spec.bound, "max_in_flight": spec.max_in_flight}
    least |= {_NAMES[name]: int(spec.limits[name]) for name in _SHARED if name in spec.limits}
    least |= beside or {}
    if "capacity" in spec.limits:  # a run that calls a tool needs two places
        least[_NAMES["capacity"]] //= 2
    for what, amount in least.items():
        if amount < of:
            raise InputError(
                f"partitions = {of}, and {what} is enough for {amount}: each partition needs its share",
                remedy=f"partitions = {amount}, or less" if amount else None,
            )
    return [_part(spec, number, of) for number in range(1, of + 1)]


def _part(spec: BatchSpec, number: int, of: int) -> BatchSpec:
    limits: dict[str, int | str] = dict(spec.limits)
    for name in _SHARED:
        if name in limits:
            limits[name] = share(int(limits[name]), number, of)
    bound = share(spec.bound, number, of)
    if "capacity" in limits:
        bound = min(bound, int(limits["capacity"]) - 1)
    return replace(
        spec,
        batch=part_name(spec.batch, number),
        intended=share(spec.intended, number, of),
        quorum=1,
        bound=bound,
        max_in_flight=share(spec.max_in_flight, number, of),
        limits=limits,
        source=part_name(BatchId(spec.source), number) if spec.source else "",
        part=PartOf(number, of, spec.intended, spec.quorum),
    )


def whole_spec(parts: Sequence[BatchSpec]) -> BatchSpec:
    """What the whole is, from its parts, or from those that are declared so far."""
    first = parts[0]
    if first.part is None:
        return first
    limits: dict[str, int | str] = dict(first.limits)
    for name in _SHARED:
        if name in limits:
            limits[name] = sum(int(one.limits[name]) for one in parts)
    return replace(
        first,
        batch=root_of(first.batch),
        intended=first.part.intended,
        quorum=first.part.quorum,
        bound=sum(one.bound for one in parts),
        max_in_flight=sum(one.max_in_flight for one in parts),
        limits=limits,
        source=root_of(BatchId(first.source)),
        part=None,
    )


def added(spec: BatchSpec, parts: Sequence[Counters], of: int) -> Counters:
    """The counters of the whole. `spec` is the whole's; there may be fewer parts than `of` yet.

    It has ended when all parts have, and then its own quorum decides how. Its snapshot is named by nobody yet.
    """

    def total(name: str) -> int:
        return sum(int(getattr(one, name)) for one in parts)

    def family(families: Iterable[Mapping[str, int]]) -> dict[str, int]:
        found: Counter[str] = Counter()
        for one in families:
            found.update(one)
        return dict(sorted(found.items()))

    numbers = (
        "cursor", "running", "sealed", "scoring", "scored", "holes", "in_flight", "review", "spent",
        "durable", "reserved", "estimated", "effects_open", "stuck",
    )  # fmt: skip
    return Counters(
        status=status_of([one.status for one in parts], total("scored"), spec, of),
        intended=spec.intended,
        quorum=spec.quorum,
        bins=family(one.bins for one in parts),
        hole_reasons=family(one.hole_reasons for one in parts),
        refusals=family(one.refusals for one in parts),
        snapshot_id=None,
        **{name: total(name) for name in numbers},
    )


def status_of(parts: Sequence[BatchStatus], scored: int, spec: BatchSpec, of: int) -> BatchStatus:
    """Of the whole, from those of its parts, as many as are declared, and how many of all runs are scored."""
    if len(parts) < of or BatchStatus.OPEN in parts:
        return BatchStatus.OPEN
    if not all(one.ended for one in parts):
        return BatchStatus.DRAINED
    return BatchStatus.CLOSED if scored >= spec.quorum else BatchStatus.INCONCLUSIVE
