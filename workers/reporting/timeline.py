"""When things happened, in at most `MOST_BUCKETS` equal intervals, without knowing beforehand how long it will take.

At first an interval is a millisecond long. Whenever there would be too many, each two become one: memory is the same
for a batch of a minute and for one of a week.
"""

from __future__ import annotations

from enum import IntEnum

from workers.reporting.facts import MOST_BUCKETS, Bucket

__all__ = ["Happened", "Timeline"]


class Happened(IntEnum):
    """What is counted. The last two are no bars of the chart: of them follows how many runs are held."""

    ADMITTED = 0
    LEASED = 1
    PREEMPTED = 2
    REFUSED = 3
    SEALED = 4
    ENDED = 5
    TAKEN = 6
    LET_GO = 7


class Timeline:
    """Takes what happened in the order of time."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self._width = 1
        self._counts: list[list[int]] = [[0] * len(Happened)]
        self._last = -1

    def note(self, ms: int, what: Happened) -> None:
        """It happened `ms` after the beginning; none before that."""
        self.reach(ms)
        self._counts[ms // self._width][what] += 1

    def reach(self, ms: int) -> None:
        """The history goes on at least until `ms`."""
        while ms // self._width >= MOST_BUCKETS:
            self._halve()
        missing = ms // self._width + 1 - len(self._counts)
        self._counts += [[0] * len(Happened) for _ in range(missing)]
        self._last = max(self._last, ms)

    def _halve(self) -> None:
        pairs = [self._counts[at : at + 2] for at in range(0, len(self._counts), 2)]
        self._counts = [[sum(column) for column in zip(*pair, strict=True)] for pair in pairs]
        self._width *= 2

    def buckets(self) -> tuple[Bucket, ...]:
        """Adjoining, from the beginning to the last that was noted or reached; none when there was nothing."""
        if self._last < 0:
            return ()
        buckets, running = [], 0
        for at, counts in enumerate(self._counts):
            running += counts[Happened.TAKEN] - counts[Happened.LET_GO]
            buckets.append(
                Bucket(
                    from_ms=at * self._width,
                    to_ms=(at + 1) * self._width,
                    admitted=counts[Happened.ADMITTED],
                    leased=counts[Happened.LEASED],
                    preempted=counts[Happened.PREEMPTED],
                    refused=counts[Happened.REFUSED],
                    sealed=counts[Happened.SEALED],
                    ended=counts[Happened.ENDED],
                    running=running,
                )
            )
        return tuple(buckets)
