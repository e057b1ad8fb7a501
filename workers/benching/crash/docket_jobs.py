"""docket, from the package pydocket: `redelivery_timeout`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from docket import Docket, Worker

from workers.benching.crash.adapter import AT_ONCE, Ready, job, main


async def run(url: str, name: str) -> str:
    """The job."""
    return await job(url, name)


class _Client:
    def __init__(self, docket: Docket, url: str) -> None:
        self._docket, self._url = docket, url

    async def put(self, ids: Sequence[str]) -> None:
        for one in ids:
            await self._docket.add(run, key=one)(self._url, one)

    async def get(self, job: str) -> str | None:
        execution = await self._docket.get_execution(job)
        return None if execution is None else str(await execution.get_result(timeout=timedelta(seconds=1)))


@asynccontextmanager
async def connected(url: str, _redelivery: float | None) -> AsyncIterator[_Client]:
    """The client."""
    async with Docket(name="crash", url=url, execution_ttl=timedelta(hours=1)) as docket:
        docket.register(run)
        yield _Client(docket, url)


def work(url: str, redelivery: float | None, ready: Ready) -> None:
    """One worker process."""
    options = {} if redelivery is None else {"redelivery_timeout": timedelta(seconds=redelivery)}

    async def serve() -> None:
        async with Docket(name="crash", url=url, execution_ttl=timedelta(hours=1)) as docket:
            docket.register(run)
            async with Worker(docket, concurrency=AT_ONCE, **options) as worker:
                ready()
                await worker.run_forever()

    asyncio.run(serve())


if __name__ == "__main__":
    main(work, connected)
