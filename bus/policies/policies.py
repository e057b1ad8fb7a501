"""The policies by name, and a history shown to several of them at once.

policies = Policies(["first-200", "no-ledger"])
policies.start(header_policy)                # what the first line of the export declares
for told in lines:
    policies.feed(told)                      # in order, each after it was found to be true
for prevented in policies.finish(): …

Memory grows with the runs and their steps, not with the lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bus.errors import InputError
from bus.nearest import nearest
from bus.policies.arrivals import arrivals
from bus.policies.first_200 import First200
from bus.policies.job_id import JobId
from bus.policies.mutable_mean import MutableMean
from bus.policies.no_ledger import NoLedger
from bus.policies.policy import Course, Policy
from bus.policies.retry_on_timeout import RetryOnTimeout
from bus.policies.sticky_judge import StickyJudge
from bus.policies.values import Prevented
from bus.replay.telling import Told

__all__ = ["ALL", "NAMES", "Policies"]

_KINDS: Sequence[type[Policy]] = (First200, JobId, MutableMean, RetryOnTimeout, StickyJudge, NoLedger)
_BY_NAME: Mapping[str, type[Policy]] = {kind.NAME: kind for kind in _KINDS}

NAMES: tuple[str, ...] = tuple(_BY_NAME)
"""In the order in which they are shown."""
ALL = "all"
"""Stands for every one of them."""


class Policies:
    """See the module's text."""

    def __init__(self, names: Sequence[str] = (ALL,)) -> None:
        """Which: of `NAMES`, or `ALL`; each is run once. Raises InputError for a name that is none of them."""
        for name in names:
            if name != ALL and name not in _BY_NAME:
                near = nearest(name, NAMES)
                remedy = f"did you mean {near}?" if near else f"one of {', '.join((*NAMES, ALL))}"
                raise InputError(f"no policy {name[:60]!r}", remedy=remedy)
        self._kinds = [kind for name, kind in _BY_NAME.items() if ALL in names or name in names]
        self._declared: Mapping[str, Any] | None = None
        self._course: Course | None = None
        self._policies: list[Policy] = []
        self._entry: list[Told] = []

    def start(self, policy: Mapping[str, Any]) -> None:
        """The batch's declaration: `bins` and `limits` of the export's first line. Before any entry.

        It is looked at with the first entry only: that is the one by which a replay finds it true.
        """
        self._declared = policy

    def feed(self, told: Told) -> None:
        """The next line. Those of one entry stand together, as they do in every export."""
        if self._entry and self._entry[0].entry != told.entry:
            self._take()
        self._entry.append(told)

    @property
    def closed_ms(self) -> int | None:
        """When the batch closed, Unix time in milliseconds; None while it is open."""
        closed = None if self._course is None else self._course.closed
        return None if closed is None else closed.ms

    def finish(self) -> tuple[Prevented, ...]:
        """There are no more lines. Nothing, where there were none."""
        self._take()
        return tuple(policy.prevented() for policy in self._policies)

    def _take(self) -> None:
        if not self._entry:
            return
        course = self._course or self._begin()
        for arrival in arrivals(self._entry):
            course.see(arrival)
            for policy in self._policies:
                policy.see(arrival)
        self._entry.clear()

    def _begin(self) -> Course:
        assert self._declared is not None, "the declaration comes before the entries"
        self._course = Course.of(self._declared)
        self._policies = [kind(self._course) for kind in self._kinds]
        return self._course
