"""Tests that come with the program."""

import unittest

from days_in_month import day_of_year, days_in_month, is_leap


class DaysInMonthTest(unittest.TestCase):
    def test_every_fourth_year_is_a_leap_year(self) -> None:
        self.assertEqual([is_leap(year) for year in (2023, 2024, 2025)], [False, True, False])

    def test_a_plain_century_is_not(self) -> None:
        self.assertEqual(days_in_month(1900, 2), 28)

    def test_the_year_2000_was(self) -> None:
        self.assertEqual(days_in_month(2000, 2), 29)

    def test_the_last_day_of_a_common_year(self) -> None:
        self.assertEqual(day_of_year(2023, 12, 31), 365)

    def test_there_are_twelve_months(self) -> None:
        with self.assertRaises(ValueError):
            days_in_month(2023, 13)


if __name__ == "__main__":
    unittest.main()
