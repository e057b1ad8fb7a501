"""rq: a registry of jobs at work, looked through every `maintenance_interval`; a job in it is due again by its timeout.

A worker forks a process for each job; both are one here, and die together.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from redis import Redis
from rq import Queue, Retry, Worker

from workers.benching.crash.adapter import Ready, job_in_thread, main

_RETRIES = 20


def run(url: str, name: str) -> str:
    """The job."""
    return job_in_thread(url, name)


class _Client:
    def __init__(self, url: str, redelivery: float | None) -> None:
        self._url = url
        self._queue = Queue("crash", connection=Redis.from_url(url))
        self._options: dict[str, Any] = {} if redelivery is None else {"timeout": round(redelivery)}

    async def put(self, ids: Sequence[str]) -> None:
        for one in ids:
            self._queue.enqueue_call(
                "workers.benching.crash.rq_jobs.run", (self._url, one), job_id=one, retry=Retry(max=_RETRIES),
                result_ttl=3600, **self._options,
            )  # fmt: skip

    async def get(self, job: str) -> str | None:
        found = self._queue.fetch_job(job)
        value = None if found is None else found.return_value(refresh=True)
        return None if value is None else str(value)


@asynccontextmanager
async def connected(url: str, redelivery: float | None) -> AsyncIterator[_Client]:
    """The client."""
    yield _Client(url, redelivery)


def work(url: str, redelivery: float | None, ready: Ready) -> None:
    """One worker process, one job at a time."""
    options: dict[str, Any] = {}
    if redelivery is not None:
        options = {
            "maintenance_interval": 1, "job_monitoring_interval": 1, "worker_ttl": round(redelivery) + 15
        }  # fmt: skip
    worker = Worker([Queue("crash", connection=Redis.from_url(url))], connection=Redis.from_url(url), **options)
    ready()
    worker.work(logging_level="WARNING", with_scheduler=True)


if __name__ == "__main__":
    main(work, connected)
