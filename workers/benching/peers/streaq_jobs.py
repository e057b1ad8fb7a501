"""streaq: https://streaq.readthedocs.io"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from streaq import Worker

from workers.benching.peers.common import CONCURRENCY, Go, Ready, main


async def noop() -> int:
    """The job."""
    return 1


def _worker(url: str, ready: Ready = lambda: None) -> Worker:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        ready()
        yield

    return Worker(redis_url=url, queue_name="bench", concurrency=CONCURRENCY, lifespan=lifespan)


def enqueue(url: str, jobs: int, go: Go) -> None:
    """In one pipeline, as it offers."""

    async def all_of_them() -> None:
        worker = _worker(url)
        job = worker.task()(noop)
        async with worker:
            go()
            await worker.enqueue_many([job.enqueue() for _ in range(jobs)])

    asyncio.run(all_of_them())


def work(url: str, ready: Ready) -> None:
    """One worker process."""
    worker = _worker(url, ready)
    worker.task()(noop)
    worker.run_sync()


if __name__ == "__main__":
    main(enqueue, work)
