"""Tests that come with the program."""

import unittest

from fuel_log import FillUp, consumption


class ConsumptionTest(unittest.TestCase):
    def test_two_fill_ups(self) -> None:
        log = [FillUp(1000, 41.0), FillUp(1500, 30.0)]
        self.assertAlmostEqual(consumption(log), 6.0)

    def test_an_empty_first_fill_up(self) -> None:
        log = [FillUp(0, 0.0), FillUp(200, 10.0), FillUp(400, 14.0)]
        self.assertAlmostEqual(consumption(log), 6.0)

    def test_one_fill_up_says_nothing(self) -> None:
        with self.assertRaises(ValueError):
            consumption([FillUp(1000, 41.0)])


if __name__ == "__main__":
    unittest.main()
