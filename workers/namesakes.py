"""Two live processes of one name: each finds the other's entries in its own pending list, and takes them for its own.

By that a process that was killed and is started again goes on at once. But of two that live, each would fence the
other's runs, be fenced in turn, look into its list again, and so on, until no run may be delivered any more: `poison`,
for a name that was given twice. So what was fenced here is not taken back by its name alone. If nobody holds it, it is
taken as everybody's is, when it was silent for a lease time.

A restart of the server fences as well: it voids leases, and no deliveries. Then what was ours still is, once.
"""

from __future__ import annotations

from collections.abc import Hashable

__all__ = ["Namesakes"]


class Namesakes:
    """What one consumer has lost while its entry may still be under its name. Times in seconds of one clock."""

    def __init__(self) -> None:
        """Nothing was lost, and no connection was."""
        self._connections = 0
        self._away = float("-inf")
        self._lost: dict[Hashable, float] = {}
        self._voided: set[Hashable] = set()

    def connected(self, count: int, now: float) -> None:
        """`count`: how often the connection was opened so far."""
        if self._connections and count != self._connections:  # the first one is opened by the first look
            self._away = now
            self._lost.clear()
            self._voided.clear()
        self._connections = count

    def fenced(self, entry: Hashable, now: float, lease: float) -> None:
        """The lease of an entry is another's, or void."""
        if now - self._away < 2 * lease and entry not in self._voided:
            self._voided.add(entry)
            return
        self._lost = {one: at for one, at in self._lost.items() if now - at <= lease}
        self._lost[entry] = now

    def has(self, entry: Hashable, now: float, lease: float) -> bool:
        """Whether an entry under our name seems to be in another's hands."""
        at = self._lost.get(entry)
        return at is not None and now - at <= lease
