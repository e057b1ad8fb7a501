"""Inputs that nobody thought of: drawn at random, counted, and told at the end of the session.

    @fuzzed("envelopes", st.binary())
    def test_any_bytes(data): ...

`make test` tries a few hundred of each; `make fuzz` `EVALBUS_SOAK` times as many, with seeds that differ each time.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from tests.soak import times

__all__ = ["TRIED", "fuzzed"]

Test = TypeVar("Test", bound=Callable[..., Any])

TRIED: Counter[str] = Counter()
"""Inputs tried in this process, by what they were given to."""


def fuzzed(
    what: str, *strategies: SearchStrategy[Any], count: int = 200, shrink: bool = True
) -> Callable[[Test], Test]:
    """`count` inputs, times `EVALBUS_SOAK`. The same ones in each `make test`: what fails once fails again.

    `shrink`: look for a smaller input that fails, too; not where each one takes seconds.
    """
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)

    def wrap(test: Test) -> Test:
        @functools.wraps(test)
        def tried(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as the test has them
            TRIED[what] += 1
            test(*args, **kwargs)

        tuned = settings(
            max_examples=times(count), deadline=None, derandomize="EVALBUS_SOAK" not in os.environ,
            suppress_health_check=list(HealthCheck), database=None, phases=phases,
        )  # fmt: skip
        return tuned(given(*strategies)(tried))  # type: ignore[return-value]

    return wrap
