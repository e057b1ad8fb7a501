"""A search for a pattern, in a process of its own.

Some patterns take exponential time on some answers, and Python's `re` can neither be interrupted nor lets other threads
run meanwhile: in this process, one answer would silence the scorer until its lease is gone.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from workers.processes.commands import CommandError, Limits, run_limited

__all__ = ["SearchError", "is_found"]

_FOUND: Final = 10
_NOT_FOUND: Final = 11
_SEARCH: Final = f"""
import json, re, sys
asked = json.load(sys.stdin)
found = any(re.search(pattern, asked["answer"], asked["flags"]) for pattern in asked["patterns"])
sys.exit({_FOUND} if found else {_NOT_FOUND})
"""


class SearchError(Exception):
    """The search did not come to an end; `str(error)` is one line."""


async def is_found(
    patterns: Sequence[str],
    answer: str,
    *,
    flags: int = 0,
    timeout: float,  # noqa: ASYNC109 - a limit of the process, as in `run_limited`
    limits: Limits | None = None,
) -> bool:
    """Whether any of the patterns is in the answer. `flags` are of `re`, `timeout` is seconds. Raises SearchError."""
    asked = {"patterns": list(patterns), "answer": answer, "flags": int(flags)}
    try:
        finished = await run_limited(
            [sys.executable, "-I", "-S", "-c", _SEARCH], cwd=Path(tempfile.gettempdir()),
            stdin=json.dumps(asked).encode(), timeout=timeout, limits=limits,
        )  # fmt: skip
    except CommandError as error:
        raise SearchError(str(error)) from error
    if finished.exit_code not in (_FOUND, _NOT_FOUND):
        raise SearchError(f"searching {patterns[0][:100]!r}: {finished.told}")
    return finished.exit_code == _FOUND
