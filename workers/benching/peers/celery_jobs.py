"""celery: https://docs.celeryq.dev"""

from __future__ import annotations

import sys

from celery import Celery
from celery.signals import worker_ready

from workers.benching.peers.common import Go, Ready, main, socket_path


def noop() -> int:
    """The job."""
    return 1


def _app(url: str) -> Celery:
    place = f"redis+socket://{socket_path(url)}" if url.startswith("unix:") else url
    return Celery("bench", broker=place, backend=place)


def enqueue(url: str, jobs: int, go: Go) -> None:
    """One by one, on one connection."""
    app = _app(url)
    job = app.task(noop, name="noop")
    with app.connection_for_write() as connection, app.amqp.Producer(connection) as producer:
        go()
        for _ in range(jobs):
            job.apply_async(producer=producer)


def work(url: str, ready: Ready) -> None:
    """One worker process: the pool `solo`, which is the fastest for jobs that do nothing."""
    app = _app(url)
    app.task(noop, name="noop")

    def started(**_told: object) -> None:
        ready()

    worker_ready.connect(started)
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR"]
    sys.exit(app.worker_main(["worker", "--pool", "solo", "--concurrency", "1", *quiet]))


if __name__ == "__main__":
    main(enqueue, work)
