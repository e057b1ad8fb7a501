import unittest

from merge_queues import Task, merge_queues


class HiddenMergeQueuesTest(unittest.TestCase):
    def test_a_long_step_in_one_queue(self) -> None:
        merged = merge_queues([[Task(0, "a"), Task(100, "b")], [Task(50, "c"), Task(60, "d")]])
        self.assertEqual([task.title for task in merged], ["a", "c", "d", "b"])

    def test_equal_priorities_follow_the_order_of_queues(self) -> None:
        merged = merge_queues([[Task(1, "x"), Task(1, "y")], [Task(1, "z")]])
        self.assertEqual([task.title for task in merged], ["x", "y", "z"])

    def test_three_queues(self) -> None:
        queues = [[Task(n, str(n)) for n in range(start, 12, 3)] for start in (2, 0, 1)]
        self.assertEqual([task.priority for task in merge_queues(queues)], list(range(12)))

    def test_an_empty_queue_among_others(self) -> None:
        merged = merge_queues([[], [Task(3, "only")], []])
        self.assertEqual(list(merged), [Task(3, "only")])

    def test_queues_may_be_generators(self) -> None:
        merged = merge_queues([(Task(n, "t") for n in (1, 5)), (Task(n, "u") for n in (2, 9))])
        self.assertEqual([task.priority for task in merged], [1, 2, 5, 9])


if __name__ == "__main__":
    unittest.main()
