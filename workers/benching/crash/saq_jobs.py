"""saq: a job's own `timeout`, and `sweep`, which looks for jobs that have overstayed it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from saq import Queue, Worker

from workers.benching.crash.adapter import AT_ONCE, Ready, job, main

_RETRIES = 20  # a sweep counts as one


class _Client:
    def __init__(self, queue: Queue, redelivery: float | None) -> None:
        self._queue = queue
        self._options: dict[str, Any] = {"retries": _RETRIES, "ttl": 3600}
        if redelivery is not None:
            self._options["timeout"] = round(redelivery)

    async def put(self, ids: Sequence[str]) -> None:
        for one in ids:
            await self._queue.enqueue("run", key=one, name=one, **self._options)

    async def get(self, job: str) -> str | None:
        found = await self._queue.job(job)
        return None if found is None or found.result is None else str(found.result)


@asynccontextmanager
async def connected(url: str, redelivery: float | None) -> AsyncIterator[_Client]:
    """The client."""
    queue = Queue.from_url(url)
    await queue.connect()
    yield _Client(queue, redelivery)
    await queue.disconnect()


def work(url: str, redelivery: float | None, ready: Ready) -> None:
    """One worker process."""

    async def run(_context: object, *, name: str) -> str:
        return await job(url, name)

    async def started(_context: object) -> None:
        ready()

    async def serve() -> None:
        queue = Queue.from_url(url)
        timers: dict[str, Any] = {} if redelivery is None else {"timers": {"sweep": max(1, round(redelivery) // 5)}}
        worker = Worker(queue, functions=[("run", run)], startup=started, concurrency=AT_ONCE, **timers)
        await queue.connect()
        await worker.start()

    asyncio.run(serve())


if __name__ == "__main__":
    main(work, connected)
