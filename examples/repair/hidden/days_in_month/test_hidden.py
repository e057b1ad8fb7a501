"""Tests that judge a repair; the solver does not see them."""

import calendar
import unittest

from days_in_month import day_of_year, days_in_month, is_leap


class DaysInMonthHiddenTest(unittest.TestCase):
    def test_centuries(self) -> None:
        leap = [year for year in range(1600, 2500, 100) if is_leap(year)]
        self.assertEqual(leap, [1600, 2000, 2400])

    def test_five_centuries_agree_with_the_calendar(self) -> None:
        for year in range(1700, 2201):
            self.assertEqual(is_leap(year), calendar.isleap(year), year)

    def test_all_months_of_a_century_year(self) -> None:
        lengths = [days_in_month(2100, month) for month in range(1, 13)]
        self.assertEqual(lengths, [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])

    def test_the_last_day_of_the_year(self) -> None:
        self.assertEqual([day_of_year(year, 12, 31) for year in (1900, 2000, 2024)], [365, 366, 366])

    def test_days_that_do_not_exist(self) -> None:
        for year, month, day in ((1900, 2, 29), (2023, 2, 29), (2023, 4, 31), (2023, 1, 0)):
            with self.subTest(year=year, month=month, day=day), self.assertRaises(ValueError):
                day_of_year(year, month, day)

    def test_the_first_of_march(self) -> None:
        self.assertEqual((day_of_year(2023, 3, 1), day_of_year(2024, 3, 1)), (60, 61))


if __name__ == "__main__":
    unittest.main()
