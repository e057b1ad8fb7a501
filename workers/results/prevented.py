"""`evalbus replay --policy`: what would have become of the same arrivals where nobody had compared anything.

The policies look on while a history is replayed, so that no claim is about a history that is not true. Claims are no
violations: they say what did not happen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bus.errors import InputError
from bus.policies import Policies, Prevented, RatePoint, together
from bus.port import BatchStatus
from bus.replay.lines import Footer, Header
from bus.replay.telling import Told
from workers.brief import brief
from workers.files import check_writable, write_whole
from workers.results.derived import Derived

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Watch", "show", "sparkline", "write_json"]

_BARS = "▁▂▃▄▅▆▇█"
_CELLS = 48
_LONGEST = 1_000  # characters of a proof: it quotes what somebody presented


class Watch:
    """What a `replay` was asked about policies: shows them what was found to be true, and then says what they say."""

    def __init__(self, names: Sequence[str], json_file: Path | None, *, why: bool) -> None:
        """As on the command line; without names nothing is asked. Raises InputError before anything is read."""
        if not names and (why or json_file is not None):
            option = "--why" if why else "--json"
            raise InputError(f"{option} is about what a policy would have done", remedy="name one: --policy all")
        self._names = names
        Policies(names)  # a name that is none of them is said before anything is read
        self._histories: list[Policies] = []
        if json_file is not None:
            check_writable(json_file)
        self._json_file, self._why = json_file, why
        self._bins: Sequence[str] = ()

    def see(self, said: Header | Told | Footer) -> None:
        """The next line of the history, or the first of the next partition's."""
        if not self._names:
            return
        if isinstance(said, Header):
            self._histories.append(Policies(self._names))
            self._histories[-1].start(said.policy)
            self._bins = said.policy.get("bins", ())
        elif isinstance(said, Told):
            self._histories[-1].feed(said)

    def report(self, derived: Derived, console: Console) -> None:
        """Write and show what the policies say of a history that holds. Raises InputError for a file that cannot be.

        Where the batch is open they say nothing of a rate: it has no number that another could be compared with.
        """
        if not self._names:
            return
        found = derived.found
        prevented = together([one.finish() for one in self._histories])
        closed_ms = [one.closed_ms for one in self._histories if one.closed_ms is not None]
        status, closed = BatchStatus(found.status), None
        if not status.ended:
            prevented = tuple(replace(one, rate=()) for one in prevented)
        elif status is BatchStatus.CLOSED and closed_ms:
            closed = RatePoint(max(closed_ms), found.bins[self._bins[0]], sum(found.bins.values()))
        if self._json_file is not None:
            write_json(self._json_file, derived, prevented, closed)
        show(prevented, closed, console, why=self._why)
        if not status.ended:
            console.print("\nthe batch is open: it has no pass rate yet that another could be compared with")


# --- on the screen ------------------------------------------------------------------------------------------


def show(prevented: Sequence[Prevented], closed: RatePoint | None, console: Console, *, why: bool) -> None:
    """Each policy with its claims and the rate that it would have shown. `why`: with every proof."""
    for one in prevented:
        console.print(f"\n{one.policy}", style="bold", markup=False, highlight=False)
        for line in _lines(one, closed, why=why):
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def _lines(one: Prevented, closed: RatePoint | None, *, why: bool) -> Iterator[str]:
    yield f"  {one.rule}"
    for claim in one.claims:
        yield f"  {claim.what.replace('_', ' '):<28}{claim.count:,} of {claim.of:,} {claim.unit}"
        for proof in claim.proofs if why else ():
            yield "    " + brief(f"{proof.run}: {proof.says} [{', '.join(proof.entries)}]", _LONGEST)
    if one.rate:
        yield from _rate_lines(one.rate, closed)


def _rate_lines(rate: Sequence[RatePoint], closed: RatePoint | None) -> Iterator[str]:
    took = (rate[-1].ms - rate[0].ms) / 1000
    yield f"  {'pass rate it would show':<28}{sparkline(rate)}  0% to 100%, over {took:,.1f} s"
    yield _share("at first", rate[0])
    if closed is None:
        yield _share("in the end", rate[-1])
        yield f"    {'closed, what counts':<26}{'none':>6}  below its quorum"
        return
    before = [point for point in rate if point.ms <= closed.ms]
    if before:
        yield _share("at the close", before[-1])
    if len(before) < len(rate):
        yield _share("in the end", rate[-1])
    yield _share("closed, what counts", closed)


def _share(when: str, point: RatePoint) -> str:
    share = f"{point.passed / point.counted:.1%}" if point.counted else "none"
    return f"    {when:<26}{share:>6}  {point.passed:,} of {point.counted:,}"


def sparkline(rate: Sequence[RatePoint]) -> str:
    """The rate over time, from the first point to the last: 0 to 100% in eight heights, a blank where there is none.

    Equal steps of time, so that it stands still where the dashboard would have. At least one point.
    """
    began, span = rate[0].ms, rate[-1].ms - rate[0].ms
    at, drawn = 0, []
    for cell in range(_CELLS):
        until = began + span * cell / (_CELLS - 1)
        while at + 1 < len(rate) and rate[at + 1].ms <= until:
            at += 1
        point = rate[at]
        height = point.passed * len(_BARS) // point.counted if point.counted else None
        drawn.append(" " if height is None else _BARS[min(height, len(_BARS) - 1)])
    return "".join(drawn)


# --- for programs -------------------------------------------------------------------------------------------


def write_json(file: Path, derived: Derived, prevented: Sequence[Prevented], closed: RatePoint | None) -> None:
    """All that `--why` shows, and the whole rate, as JSON. Raises InputError when it cannot be written."""
    found = derived.found
    chains = [
        {"batch": one.batch, "entries": one.entries, "head": one.head, "snapshot_id": one.snapshot_id}
        for one in (part.found for part in derived.parts)
    ]
    said = {
        "batch": found.batch,
        "plane": found.plane,
        "state": BatchStatus(found.status).shown,
        "entries": found.entries,
        "head": found.head or None,
        **({"partitions": chains} if chains else {}),
        "snapshot_id": found.snapshot_id,
        "closed": None if closed is None else asdict(closed),
        "policies": [asdict(one) for one in prevented],
    }
    write_whole(file, json.dumps(said, indent=1, ensure_ascii=False) + "\n")
