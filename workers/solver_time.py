"""The time that a solver has: it runs while the solver works or its answers are made, and stands while it has to wait.

A run that waits for a place at the endpoint, or for tokens that others may give back, is not slow. If that counted,
a large batch would fail by its own size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["SolverTime"]


class SolverTime:
    """A stopwatch."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: seconds."""
        self._clock = clock
        self._began = clock()
        self._stood = 0.0
        self._since = 0.0
        self._stops = 0

    def restart(self) -> None:
        """Begin again at nothing."""
        self._began, self._stood, self._since = self._clock(), 0.0, self._clock()

    def spent(self) -> float:
        """Seconds."""
        now = self._clock()
        return now - self._began - self._stood - (now - self._since if self._stops else 0.0)

    def standing(self) -> float:
        """Seconds for which it has stood without a break; 0.0 while it runs."""
        return self._clock() - self._since if self._stops else 0.0

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let it stand; several may do so at once."""
        if not self._stops:
            self._since = self._clock()
        self._stops += 1
        try:
            yield
        finally:
            self._stops -= 1
            if not self._stops:
                self._stood += self._clock() - self._since
