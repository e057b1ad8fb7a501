"""Merging several queues of tasks, each already sorted, into one."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """Something to do; a lower number is more urgent."""

    priority: int
    title: str


def merge_queues(queues: Iterable[Iterable[Task]]) -> Iterator[Task]:
    """Yield the tasks of all `queues`, the most urgent first.

    Each queue is sorted by priority. Of equally urgent tasks, the one from the earlier queue comes first.
    """
    heap: list[tuple[int, int, Task, Iterator[Task]]] = []
    for index, queue in enumerate(queues):
        tasks = iter(queue)
        first = next(tasks, None)
        if first is not None:
            heap.append((first.priority, index, first, tasks))
    heapq.heapify(heap)
    while heap:
        _, index, task, tasks = heapq.heappop(heap)
        yield task
        following = next(tasks, None)
        if following is not None:
            heapq.heappush(heap, (following.priority, index, following, tasks))
