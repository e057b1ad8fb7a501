import unittest

from histogram_buckets import bars, histogram


class HiddenHistogramBucketsTest(unittest.TestCase):
    def test_both_limits(self) -> None:
        self.assertEqual(histogram([0, 4, 4], 0, 4, 4), [1, 0, 0, 2])

    def test_a_range_below_zero(self) -> None:
        self.assertEqual(histogram([-3, -1, 1, 3], -3, 3, 3), [1, 1, 2])

    def test_values_outside_are_left_out(self) -> None:
        self.assertEqual(histogram([-0.5, 10.5, 3], 0, 10, 1), [1])

    def test_each_lower_edge(self) -> None:
        self.assertEqual(histogram([0, 2, 4, 6], 0, 8, 4), [1, 1, 1, 1])

    def test_no_values(self) -> None:
        self.assertEqual(histogram([], 0, 1, 3), [0, 0, 0])

    def test_no_range_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            histogram([1], 5, 5, 2)

    def test_bars_without_values(self) -> None:
        self.assertEqual(bars([0, 0]), ["", ""])


if __name__ == "__main__":
    unittest.main()
