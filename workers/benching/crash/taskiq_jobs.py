"""taskiq with a stream as its queue: `idle_timeout`, by which another's entries are taken when a message comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from taskiq.api import run_receiver_task
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from workers.benching.crash.adapter import AT_ONCE, Ready, job, main


def _broker(url: str, redelivery: float | None) -> tuple[RedisStreamBroker, Any]:
    options: dict[str, Any] = {} if redelivery is None else {"idle_timeout": round(1000 * redelivery)}
    broker = RedisStreamBroker(url=url, **options).with_result_backend(RedisAsyncResultBackend(redis_url=url))

    async def run(name: str) -> str:
        return await job(url, name)

    return broker, broker.register_task(run, task_name="run")


class _Client:
    def __init__(self, broker: RedisStreamBroker, task: Any) -> None:  # noqa: ANN401
        self._broker, self._task = broker, task

    async def put(self, ids: Sequence[str]) -> None:
        for one in ids:
            await self._task.kicker().with_task_id(one).kiq(one)

    async def get(self, job: str) -> str | None:
        return str((await self._broker.result_backend.get_result(job)).return_value)


@asynccontextmanager
async def connected(url: str, redelivery: float | None) -> AsyncIterator[_Client]:
    """The client."""
    broker, task = _broker(url, redelivery)
    await broker.startup()
    yield _Client(broker, task)
    await broker.shutdown()


def work(url: str, redelivery: float | None, ready: Ready) -> None:
    """One worker process."""

    async def serve() -> None:
        broker, _ = _broker(url, redelivery)
        broker.is_worker_process = True
        await broker.startup()
        ready()
        await run_receiver_task(broker, max_async_tasks=AT_ONCE, run_startup=False)

    asyncio.run(serve())


if __name__ == "__main__":
    main(work, connected)
