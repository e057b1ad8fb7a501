"""celery with `acks_late`: the broker's `visibility_timeout`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from celery import Celery
from celery.signals import worker_ready

from workers.benching.crash.adapter import AT_ONCE, Ready, job_in_thread, main


def _app(url: str, redelivery: float | None) -> Celery:
    app = Celery("crash", broker=url, backend=url)
    app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True, worker_prefetch_multiplier=1)
    if redelivery is not None:
        app.conf.broker_transport_options = {"visibility_timeout": redelivery}

    def run(name: str) -> str:
        return job_in_thread(url, name)

    app.task(run, name="run")
    return app


class _Client:
    def __init__(self, app: Celery) -> None:
        self._app = app

    async def put(self, ids: Sequence[str]) -> None:
        for one in ids:
            self._app.send_task("run", (one,), task_id=one)

    async def get(self, job: str) -> str | None:
        found = self._app.AsyncResult(job)
        return str(found.result) if found.successful() else None


@asynccontextmanager
async def connected(url: str, redelivery: float | None) -> AsyncIterator[_Client]:
    """The client."""
    yield _Client(_app(url, redelivery))


def work(url: str, redelivery: float | None, ready: Ready) -> None:
    """One worker process, jobs in threads."""

    def started(**_told: object) -> None:
        ready()

    worker_ready.connect(started)
    words = ["worker", "--pool", "threads", "--concurrency", str(AT_ONCE), "--loglevel", "WARNING"]
    sys.exit(_app(url, redelivery).worker_main(words))


if __name__ == "__main__":
    main(work, connected)
