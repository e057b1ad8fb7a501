"""Tests that judge a repair; the solver does not see them."""

import unittest

from fuel_log import FillUp, consumption


class ConsumptionHiddenTest(unittest.TestCase):
    def test_only_later_fill_ups_count(self) -> None:
        log = [FillUp(10_000, 55.0), FillUp(10_400, 20.0), FillUp(11_000, 35.0)]
        self.assertAlmostEqual(consumption(log), 5.5)

    def test_the_last_fill_up_counts(self) -> None:
        log = [FillUp(0, 10.0), FillUp(100, 1.0), FillUp(200, 19.0)]
        self.assertAlmostEqual(consumption(log), 10.0)

    def test_the_first_fill_up_changes_nothing(self) -> None:
        rest = [FillUp(600, 48.0)]
        self.assertEqual(consumption([FillUp(0, 1.0), *rest]), consumption([FillUp(0, 60.0), *rest]))

    def test_a_car_that_stood_still(self) -> None:
        with self.assertRaises(ValueError):
            consumption([FillUp(500, 20.0), FillUp(500, 5.0)])

    def test_no_fill_ups(self) -> None:
        with self.assertRaises(ValueError):
            consumption([])


if __name__ == "__main__":
    unittest.main()
