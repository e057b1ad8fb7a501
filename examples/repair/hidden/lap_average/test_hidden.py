"""Tests that judge a repair; the solver does not see them."""

import unittest

from lap_average import average_lap, describe


class LapAverageHiddenTest(unittest.TestCase):
    def test_no_laps_have_no_average(self) -> None:
        self.assertIsNone(average_lap([]))

    def test_an_empty_tuple_is_no_laps_either(self) -> None:
        self.assertEqual(describe(()), "no laps")

    def test_one_lap_is_its_own_average(self) -> None:
        self.assertEqual(average_lap((58.5,)), 58.5)

    def test_laps_of_no_time_still_have_an_average(self) -> None:
        self.assertEqual(average_lap([0.0, 0.0]), 0.0)
        self.assertEqual(describe([0.0]), "0:00")

    def test_the_average_is_rounded_before_it_is_split(self) -> None:
        self.assertEqual(describe([119.8]), "2:00")


if __name__ == "__main__":
    unittest.main()
