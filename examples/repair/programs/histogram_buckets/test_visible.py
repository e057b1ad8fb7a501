import unittest

from histogram_buckets import bars, histogram


class HistogramBucketsTest(unittest.TestCase):
    def test_values_within_buckets(self) -> None:
        self.assertEqual(histogram([1, 2, 6, 9], 0, 10, 2), [2, 2])

    def test_an_inner_edge_belongs_to_the_upper_bucket(self) -> None:
        self.assertEqual(histogram([5], 0, 10, 2), [0, 1])

    def test_the_upper_limit_belongs_to_the_last_bucket(self) -> None:
        self.assertEqual(histogram([10], 0, 10, 2), [0, 1])

    def test_bars(self) -> None:
        self.assertEqual(bars([1, 2], longest=4), ["##", "####"])


if __name__ == "__main__":
    unittest.main()
