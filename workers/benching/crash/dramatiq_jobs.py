"""dramatiq: `heartbeat_timeout`, after which a worker's messages are taken back by whoever does the maintenance.

That is done by chance, at one in a hundred commands: for the short setting, at each.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from workers.benching.crash.adapter import AT_ONCE, Ready, job_in_thread, main

_ALWAYS = 100_000  # of as many


def _actor(url: str, redelivery: float | None) -> Any:  # noqa: ANN401
    options = (
        {} if redelivery is None else {"heartbeat_timeout": round(1000 * redelivery), "maintenance_chance": _ALWAYS}
    )
    broker = RedisBroker(url=url, **options)
    broker.add_middleware(Results(backend=RedisBackend(url=url), store_results=True))
    dramatiq.set_broker(broker)

    def run(name: str) -> str:
        return job_in_thread(url, name)

    return dramatiq.actor(run, broker=broker)


class _Client:
    def __init__(self, actor: Any) -> None:  # noqa: ANN401
        self._actor = actor

    async def put(self, ids: Sequence[str]) -> None:
        for one in ids:
            self._actor.broker.enqueue(self._actor.message(one).copy(message_id=one))

    async def get(self, job: str) -> str | None:
        return str(self._actor.message(job).copy(message_id=job).get_result(block=False))


@asynccontextmanager
async def connected(url: str, redelivery: float | None) -> AsyncIterator[_Client]:
    """The client."""
    yield _Client(_actor(url, redelivery))


def work(url: str, redelivery: float | None, ready: Ready) -> None:
    """One worker process."""
    worker = dramatiq.Worker(_actor(url, redelivery).broker, worker_threads=AT_ONCE)
    worker.start()
    ready()
    signal.sigwait({signal.SIGTERM})


if __name__ == "__main__":
    main(work, connected)
