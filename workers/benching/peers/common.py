"""The two halves of every adapter: who enqueues, and who works. Standard library only.

    python -m workers.benching.peers.<adapter> enqueue URL JOBS      says "ready", waits for a line, enqueues, ends
    python -m workers.benching.peers.<adapter> work URL              says "ready" when it takes jobs; until SIGTERM

A job does nothing and returns 1; its result is stored.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

__all__ = ["CONCURRENCY", "Go", "Ready", "main", "socket_path"]

CONCURRENCY = 64
"""Jobs at a time in each worker process, of those queues that are made of coroutines: as many as evalbus drives."""

Go = Callable[[], None]
"""Say that everything is set up, and wait for the word."""
Ready = Callable[[], None]
"""Say that jobs are taken."""


def main(enqueue: Callable[[str, int, Go], None], work: Callable[[str, Ready], None]) -> None:
    """What an adapter is as a program."""
    _, what, url, *rest = sys.argv
    if what == "enqueue":
        enqueue(url, int(rest[0]), _go)
    else:
        work(url, _ready)


def _ready() -> None:
    os.write(1, b"ready\n")  # not by print: celery takes that for its log


def _go() -> None:
    _ready()
    sys.stdin.readline()


def socket_path(url: str) -> str:
    """Of a `unix://` URL, for those queues that do not know them."""
    return unquote(urlsplit(url).path)
