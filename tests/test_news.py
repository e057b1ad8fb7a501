"""What `evalbus run` says beside its counts: who is asked, and how often."""

from __future__ import annotations

from typing import cast

from bus.port import Counters
from workers.news.news import News

COUNTERS = cast("Counters", None)


class Always:
    """There is something new each time."""

    def __init__(self, name: str, every: float) -> None:
        """`name`: what it says."""
        self._name, self.every = name, every

    async def news(self, _: Counters, /) -> list[str]:
        """See `workers.news.news.Source`."""
        return [self._name]


async def test_each_source_is_asked_at_its_own_pace_and_in_its_order() -> None:
    """The counts are looked at five times a second; a list of the server's, or a directory of logs, need not be."""
    now = 10.0
    news = News([Always("seldom", 2.0), Always("often", 0.0)], lambda: now)
    assert await news.lines(COUNTERS) == ["seldom", "often"]
    now += 1.9
    assert await news.lines(COUNTERS) == ["often"]
    now += 0.1
    assert await news.lines(COUNTERS) == ["seldom", "often"]
    assert await news.lines(COUNTERS) == ["often"]
