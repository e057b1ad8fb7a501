"""A small cache that forgets the entry that was used longest ago."""

from __future__ import annotations

from collections import OrderedDict


class RecentCache:
    """Keeps at most `capacity` values; reading or writing an entry counts as using it."""

    def __init__(self, capacity: int) -> None:
        """Raises ValueError if `capacity` is not at least 1."""
        if capacity < 1:
            raise ValueError("a cache holds at least one entry")
        self._capacity = capacity
        self._entries: OrderedDict[str, int] = OrderedDict()

    def get(self, key: str) -> int | None:
        """Return the value under `key`, or None if it is not (or no longer) kept."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key]

    def put(self, key: str, value: int) -> None:
        """Keep `value` under `key`; if that is one too many, drop the entry used longest ago."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._capacity:
            self._entries.popitem(last=True)

    def keys(self) -> list[str]:
        """Return the keys, the one used longest ago first."""
        return list(self._entries)
