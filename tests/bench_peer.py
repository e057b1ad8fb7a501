"""A job queue of the simplest kind, for tests of how a peer's results are counted; EVALBUS_TEST_LOSES are lost."""

from __future__ import annotations

import os

import redis

from workers.benching.peers.common import Go, Ready, main, socket_path


def enqueue(url: str, jobs: int, go: Go) -> None:
    """One by one."""
    with redis.Redis(unix_socket_path=socket_path(url)) as client:
        go()
        for number in range(jobs):
            client.rpush("jobs", number)


def work(url: str, ready: Ready) -> None:
    """The first numbers are lost."""
    losing = int(os.environ.get("EVALBUS_TEST_LOSES", "0"))
    with redis.Redis(unix_socket_path=socket_path(url)) as client:
        ready()
        while True:
            _, number = client.blpop(["jobs"])
            if int(number) >= losing:
                client.set(f"result:{int(number)}", 1)


if __name__ == "__main__":
    main(enqueue, work)
