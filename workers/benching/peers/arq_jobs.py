"""arq: https://arq-docs.helpmanual.io"""

from __future__ import annotations

import asyncio

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker

from workers.benching.peers.common import CONCURRENCY, Go, Ready, main, socket_path

_AT_ONCE = 100  # jobs that are enqueued side by side
_POLL = 0.01  # seconds; by default it looks twice a second, and would do that many times 64 jobs and no more


async def noop(_context: object) -> int:
    """The job."""
    return 1


def _settings(url: str) -> RedisSettings:
    return RedisSettings(unix_socket_path=socket_path(url)) if url.startswith("unix:") else RedisSettings.from_dsn(url)


def enqueue(url: str, jobs: int, go: Go) -> None:
    """Many side by side."""

    async def all_of_them() -> None:
        pool = await create_pool(_settings(url))
        go()
        for at in range(0, jobs, _AT_ONCE):
            await asyncio.gather(*(pool.enqueue_job("noop") for _ in range(min(_AT_ONCE, jobs - at))))
        await pool.close()

    asyncio.run(all_of_them())


def work(url: str, ready: Ready) -> None:
    """One worker process."""

    async def started(_context: object) -> None:
        ready()

    async def serve() -> None:
        worker = Worker(
            functions=[noop], redis_settings=_settings(url), on_startup=started, max_jobs=CONCURRENCY,
            poll_delay=_POLL, keep_result=3600,
        )  # fmt: skip
        await worker.async_run()

    asyncio.run(serve())


if __name__ == "__main__":
    main(enqueue, work)
