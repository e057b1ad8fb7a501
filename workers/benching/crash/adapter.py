"""What every adapter is as a program: a worker process, and a client that enqueues and asks for results.

    python -m workers.benching.crash.<name>_jobs work URL REDELIVERY      says "ready" when it takes jobs; until SIGTERM
    python -m workers.benching.crash.<name>_jobs client URL REDELIVERY    says "ready"; then a line an answer:

        put ID …    enqueue a job of each id: "ok", or "refused WHY"
        get ID      what is stored as the job's result: "is RESULT", or "none"
        recorded ID what the queue itself has recorded about the job of refusals and of giving up: "is WHAT", or "none"

REDELIVERY is the time in seconds after which a job of a silent worker should go to another, or "default".

The job is the same everywhere: it adds one to `effects:<id>` in the server, sleeps, and returns who ran it. What it did
is also told in a file beside the server, which no crash of the server takes back. Standard library only.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit

__all__ = [
    "AT_ONCE",
    "JOBS_FILE",
    "SECONDS",
    "WHO",
    "Client",
    "Ready",
    "Recording",
    "job",
    "job_in_thread",
    "main",
]

SECONDS = 3.0
"""That a job takes."""
AT_ONCE = 4
"""Jobs that a worker drives at a time."""
JOBS_FILE, WHO = "EVALBUS_CRASH_JOBS", "EVALBUS_CRASH_WHO"
"""Environment of a worker: where its jobs are told, and its name."""

_PATIENCE = 10.0  # seconds for the server to come back: an effect in the world would not be lost either
_PAUSE = 0.1

Ready = Callable[[], None]
"""Say that jobs are taken."""


class Client(Protocol):
    """The enqueuing side of a queue."""

    async def put(self, ids: Sequence[str]) -> None:
        """Enqueue a job of each id. Raises anything when the queue refuses."""

    async def get(self, job: str) -> str | None:
        """What is stored as its result; None when nothing is."""


@runtime_checkable
class Recording(Protocol):
    """A queue that records what it refuses."""

    async def recorded(self, job: str) -> str | None:
        """What it has recorded about the job, in its words; None when nothing."""


def _tell(what: str, job: str) -> None:
    line = f"{what} {job} {os.environ[WHO]} {time.time():.3f}\n".encode()
    file = os.open(os.environ[JOBS_FILE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line)  # at once, so that lines of several processes don't mix
    finally:
        os.close(file)


def _add(url: str, job: str) -> None:
    """INCR, by hand: blocking, and over before an event loop would notice."""
    where = urlsplit(url)
    name = f"effects:{job}"
    with socket.create_connection((where.hostname, where.port), timeout=5) as connection:
        connection.sendall(f"*2\r\n$4\r\nINCR\r\n${len(name)}\r\n{name}\r\n".encode())
        if not connection.recv(64).startswith(b":"):
            raise OSError("the server does not count yet")


async def job(url: str, name: str) -> str:
    """The job of those queues whose jobs are coroutines."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            _add(url, name)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(_PAUSE)
    _tell("effect", name)
    await asyncio.sleep(SECONDS)
    _tell("end", name)
    return os.environ[WHO]


def job_in_thread(url: str, name: str) -> str:
    """The job of those that run plain functions."""
    return asyncio.run(job(url, name))


def main(
    work: Callable[[str, float | None, Ready], None],
    connected: Callable[[str, float | None], AbstractAsyncContextManager[Client]],
) -> None:
    """What an adapter is as a program."""
    _, what, url, written = sys.argv
    redelivery = None if written == "default" else float(written)
    if what == "work":
        work(url, redelivery, lambda: _say("ready"))
    else:
        asyncio.run(_serve(connected(url, redelivery)))


async def _serve(client: AbstractAsyncContextManager[Client]) -> None:
    async with client as queue:
        _say("ready")
        while line := await asyncio.to_thread(sys.stdin.readline):
            what, *ids = line.split()
            if what == "put":
                _say(await _put(queue.put(ids)))
            elif what == "get":
                _say(await _got(queue.get(ids[0])))
            else:
                _say(await _got(queue.recorded(ids[0])) if isinstance(queue, Recording) else "none")


async def _put(putting: Awaitable[None]) -> str:
    try:
        await putting
    except Exception as error:
        return f"refused {type(error).__name__}: {' '.join(str(error).split())}"
    return "ok"


async def _got(getting: Awaitable[str | None]) -> str:
    try:
        found = await getting
    except Exception as error:
        print(f"no result: {error!r}", file=sys.stderr)
        return "none"
    return "none" if found is None else f"is {found}"


def _say(word: str) -> None:
    os.write(1, f"{word}\n".encode())  # not by print: some libraries take that for their log
