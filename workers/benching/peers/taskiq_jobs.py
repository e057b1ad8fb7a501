"""taskiq with a stream as its queue: https://taskiq-python.github.io, https://github.com/taskiq-python/taskiq-redis"""

from __future__ import annotations

import asyncio

from taskiq.api import run_receiver_task
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from workers.benching.peers.common import CONCURRENCY, Go, Ready, main

_AT_ONCE = 100  # messages that are sent side by side


async def noop() -> int:
    """The job."""
    return 1


def _broker(url: str) -> RedisStreamBroker:
    results = RedisAsyncResultBackend(redis_url=url, prefix_str="bench")
    return RedisStreamBroker(url=url).with_result_backend(results)


def enqueue(url: str, jobs: int, go: Go) -> None:
    """Many side by side: it has no call for several."""

    async def all_of_them() -> None:
        broker = _broker(url)
        job = broker.register_task(noop, task_name="noop")
        await broker.startup()
        go()
        for at in range(0, jobs, _AT_ONCE):
            await asyncio.gather(*(job.kiq() for _ in range(min(_AT_ONCE, jobs - at))))
        await broker.shutdown()

    asyncio.run(all_of_them())


def work(url: str, ready: Ready) -> None:
    """One worker process."""

    async def serve() -> None:
        broker = _broker(url)
        broker.is_worker_process = True
        broker.register_task(noop, task_name="noop")
        await broker.startup()
        ready()
        await run_receiver_task(broker, max_async_tasks=CONCURRENCY, run_startup=False)

    asyncio.run(serve())


if __name__ == "__main__":
    main(enqueue, work)
