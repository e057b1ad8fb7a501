"""Tests that come with the program."""

import unittest

from lap_average import average_lap, describe


class LapAverageTest(unittest.TestCase):
    def test_the_mean_of_three_laps(self) -> None:
        self.assertEqual(average_lap([60.0, 62.0, 64.0]), 62.0)

    def test_a_runner_who_did_not_start(self) -> None:
        self.assertEqual(describe([]), "no laps")

    def test_minutes_and_seconds(self) -> None:
        self.assertEqual(describe([65.0, 65.0]), "1:05")


if __name__ == "__main__":
    unittest.main()
