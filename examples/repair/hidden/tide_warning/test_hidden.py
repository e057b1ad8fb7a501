"""Tests that judge a repair; the solver does not see them."""

import unittest

from tide_warning import Forecast, closures, is_closed


class TideWarningHiddenTest(unittest.TestCase):
    def test_an_offshore_gale_leaves_the_path_open(self) -> None:
        self.assertFalse(is_closed(Forecast(2.0, 45, False)))

    def test_a_light_onshore_wind_leaves_it_open(self) -> None:
        self.assertFalse(is_closed(Forecast(2.0, 33, True)))

    def test_both_limits_are_included(self) -> None:
        self.assertTrue(is_closed(Forecast(5.2, 0, False)))
        self.assertTrue(is_closed(Forecast(0.0, 34, True)))

    def test_both_reasons_at_once(self) -> None:
        self.assertTrue(is_closed(Forecast(6.0, 50, True)))

    def test_high_water_with_an_offshore_wind(self) -> None:
        self.assertTrue(is_closed(Forecast(5.9, 20, False)))

    def test_days_keep_their_order(self) -> None:
        days = {"Sat": Forecast(5.5, 0, False), "Fri": Forecast(1.0, 0, True), "Thu": Forecast(1.0, 36, True)}
        self.assertEqual(closures(days), ["Sat", "Thu"])


if __name__ == "__main__":
    unittest.main()
