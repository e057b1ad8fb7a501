"""streaq: `idle_timeout`, by which a worker's entries of the stream are taken over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from streaq import Worker

from workers.benching.crash.adapter import AT_ONCE, Ready, job, main


def _worker(url: str, redelivery: float | None, ready: Ready = lambda: None) -> tuple[Worker[Any], Any]:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        ready()
        yield

    options: dict[str, Any] = {} if redelivery is None else {"idle_timeout": redelivery}
    worker: Worker[Any] = Worker(redis_url=url, queue_name="crash", concurrency=AT_ONCE, lifespan=lifespan, **options)

    async def run(name: str) -> str:
        return await job(url, name)

    return worker, worker.task()(run)


class _Client:
    def __init__(self, worker: Worker[Any], task: Any) -> None:  # noqa: ANN401
        self._worker, self._task = worker, task

    async def put(self, ids: Sequence[str]) -> None:
        for one in ids:
            made = self._task.enqueue(one)
            made.id = one
            await made

    async def get(self, job: str) -> str | None:
        return str((await self._worker.result_by_id(job, timeout=1)).result)


@asynccontextmanager
async def connected(url: str, redelivery: float | None) -> AsyncIterator[_Client]:
    """The client."""
    worker, task = _worker(url, redelivery)
    async with worker:
        yield _Client(worker, task)


def work(url: str, redelivery: float | None, ready: Ready) -> None:
    """One worker process."""
    _worker(url, redelivery, ready)[0].run_sync()


if __name__ == "__main__":
    main(work, connected)
