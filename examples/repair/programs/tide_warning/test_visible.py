"""Tests that come with the program."""

import unittest

from tide_warning import Forecast, closures, is_closed


class TideWarningTest(unittest.TestCase):
    def test_a_calm_day(self) -> None:
        self.assertFalse(is_closed(Forecast(tide_m=3.1, wind_knots=8, onshore=False)))

    def test_high_water_without_wind(self) -> None:
        self.assertTrue(is_closed(Forecast(tide_m=5.6, wind_knots=4, onshore=False)))

    def test_an_onshore_gale(self) -> None:
        self.assertTrue(is_closed(Forecast(tide_m=2.0, wind_knots=40, onshore=True)))

    def test_an_onshore_breeze_closes_nothing(self) -> None:
        week = {"Monday": Forecast(4.0, 12, True), "Tuesday": Forecast(3.8, 10, True)}
        self.assertEqual(closures(week), [])


if __name__ == "__main__":
    unittest.main()
