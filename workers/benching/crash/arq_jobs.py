"""arq: a job of a silent worker is found by its expired key, ten seconds after the job's own time is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from arq import ArqRedis, create_pool
from arq.connections import RedisSettings
from arq.jobs import Job
from arq.worker import Worker, func

from workers.benching.crash.adapter import AT_ONCE, Ready, job, main


class _Client:
    def __init__(self, pool: ArqRedis) -> None:
        self._pool = pool

    async def put(self, ids: Sequence[str]) -> None:
        for one in ids:
            await self._pool.enqueue_job("run", one, _job_id=one)

    async def get(self, job: str) -> str | None:
        info = await Job(job, self._pool).result_info()
        return None if info is None else str(info.result)


@asynccontextmanager
async def connected(url: str, _redelivery: float | None) -> AsyncIterator[_Client]:
    """The client."""
    pool = await create_pool(RedisSettings.from_dsn(url))
    yield _Client(pool)
    await pool.aclose()


def work(url: str, redelivery: float | None, ready: Ready) -> None:
    """One worker process."""

    async def run(_context: object, name: str) -> str:
        return await job(url, name)

    async def started(_context: object) -> None:
        ready()

    async def serve() -> None:
        options = {} if redelivery is None else {"job_timeout": redelivery}
        worker = Worker(
            functions=[func(run, name="run")], redis_settings=RedisSettings.from_dsn(url), on_startup=started,
            max_jobs=AT_ONCE, **options,
        )  # fmt: skip
        await worker.async_run()

    asyncio.run(serve())


if __name__ == "__main__":
    main(work, connected)
