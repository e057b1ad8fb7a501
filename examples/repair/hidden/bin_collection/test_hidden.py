"""Tests that judge a repair; the solver does not see them."""

import unittest
from datetime import date, timedelta

from bin_collection import DAY_NAMES, next_collection, reminder


class BinCollectionHiddenTest(unittest.TestCase):
    def test_the_day_found_has_the_name_asked_for(self) -> None:
        start = date(2024, 2, 26)
        for offset in range(7):
            today = start + timedelta(days=offset)
            for name in DAY_NAMES:
                with self.subTest(today=today, name=name):
                    found = next_collection(today, name)
                    self.assertEqual(found.strftime("%A"), name)
                    self.assertLess((found - today).days, 7)

    def test_over_the_weekend(self) -> None:
        self.assertEqual(next_collection(date(2024, 5, 18), "Monday"), date(2024, 5, 20))

    def test_over_the_end_of_a_year(self) -> None:
        self.assertEqual(next_collection(date(2024, 12, 30), "Thursday"), date(2025, 1, 2))

    def test_tomorrow(self) -> None:
        self.assertEqual(reminder(date(2024, 5, 19), "Monday"), "Monday, tomorrow")

    def test_several_days(self) -> None:
        self.assertEqual(reminder(date(2024, 5, 14), "Monday"), "Monday, in 6 days")


if __name__ == "__main__":
    unittest.main()
