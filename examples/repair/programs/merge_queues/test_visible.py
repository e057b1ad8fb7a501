import unittest

from merge_queues import Task, merge_queues


def queue(*priorities: int) -> list[Task]:
    return [Task(priority, f"task {priority}") for priority in priorities]


class MergeQueuesTest(unittest.TestCase):
    def test_two_queues(self) -> None:
        merged = merge_queues([queue(1, 4), queue(2, 3)])
        self.assertEqual([task.priority for task in merged], [1, 2, 3, 4])

    def test_one_queue(self) -> None:
        self.assertEqual(list(merge_queues([queue(1, 2)])), queue(1, 2))

    def test_empty_queues(self) -> None:
        self.assertEqual(list(merge_queues([[], []])), [])


if __name__ == "__main__":
    unittest.main()
