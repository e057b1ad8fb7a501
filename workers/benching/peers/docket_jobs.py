"""docket, from the package pydocket: https://github.com/chrisguidry/docket"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from docket import Docket, Worker

from workers.benching.peers.common import CONCURRENCY, Go, Ready, main

_AT_ONCE = 100  # jobs that are added side by side


async def noop() -> int:
    """The job."""
    return 1


def enqueue(url: str, jobs: int, go: Go) -> None:
    """Many side by side."""

    async def all_of_them() -> None:
        async with Docket(name="bench", url=url, execution_ttl=timedelta(hours=1)) as docket:
            docket.register(noop)
            go()
            for at in range(0, jobs, _AT_ONCE):
                await asyncio.gather(*(docket.add(noop)() for _ in range(min(_AT_ONCE, jobs - at))))

    asyncio.run(all_of_them())


def work(url: str, ready: Ready) -> None:
    """One worker process."""

    async def serve() -> None:
        async with Docket(name="bench", url=url, execution_ttl=timedelta(hours=1)) as docket:
            docket.register(noop)
            async with Worker(docket, concurrency=CONCURRENCY) as worker:
                ready()
                await worker.run_forever()

    asyncio.run(serve())


if __name__ == "__main__":
    main(enqueue, work)
