"""Tests that come with the program."""

import unittest
from datetime import date

from bin_collection import next_collection, reminder

WEDNESDAY = date(2024, 5, 15)


class BinCollectionTest(unittest.TestCase):
    def test_later_in_the_same_week(self) -> None:
        self.assertEqual(next_collection(WEDNESDAY, "Friday"), date(2024, 5, 17))

    def test_collections_of_today(self) -> None:
        self.assertEqual(reminder(WEDNESDAY, "Wednesday"), "Wednesday, today")

    def test_never_more_than_a_week_ahead(self) -> None:
        self.assertLess((next_collection(WEDNESDAY, "Tuesday") - WEDNESDAY).days, 7)

    def test_a_misspelt_day(self) -> None:
        with self.assertRaises(ValueError):
            next_collection(WEDNESDAY, "Fryday")


if __name__ == "__main__":
    unittest.main()
