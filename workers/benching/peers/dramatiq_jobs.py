"""dramatiq: https://dramatiq.io"""

from __future__ import annotations

import signal

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from workers.benching.peers.common import Go, Ready, main

_THREADS = 8  # its default


def noop() -> int:
    """The job."""
    return 1


def _broker(url: str) -> RedisBroker:
    broker = RedisBroker(url=url)
    results = RedisBackend(url=url, namespace="bench-results", use_namespace_prefix_keys=True)
    broker.add_middleware(Results(backend=results, store_results=True))
    dramatiq.set_broker(broker)
    return broker


def enqueue(url: str, jobs: int, go: Go) -> None:
    """One by one: it has no call for several."""
    broker = _broker(url)
    job = dramatiq.actor(noop, broker=broker)
    go()
    for _ in range(jobs):
        job.send()


def work(url: str, ready: Ready) -> None:
    """One worker process."""
    broker = _broker(url)
    dramatiq.actor(noop, broker=broker)
    worker = dramatiq.Worker(broker, worker_threads=_THREADS)
    worker.start()
    ready()
    signal.sigwait({signal.SIGTERM})


if __name__ == "__main__":
    main(enqueue, work)
