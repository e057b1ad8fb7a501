"""huey: https://huey.readthedocs.io"""

from __future__ import annotations

from huey import RedisHuey

from workers.benching.peers.common import Go, Ready, main


def noop() -> int:
    """The job."""
    return 1


def _huey(url: str) -> RedisHuey:
    return RedisHuey("bench", url=url, results=True)


def enqueue(url: str, jobs: int, go: Go) -> None:
    """One by one."""
    job = _huey(url).task()(noop)
    go()
    for _ in range(jobs):
        job()


def work(url: str, ready: Ready) -> None:
    """One worker process, of one thread as by default."""
    huey = _huey(url)
    huey.task()(noop)
    huey.on_startup()(ready)
    huey.create_consumer(workers=1, worker_type="thread", periodic=False).run()


if __name__ == "__main__":
    main(enqueue, work)
