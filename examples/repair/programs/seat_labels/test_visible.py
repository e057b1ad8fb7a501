"""Tests that come with the program."""

import unittest

from seat_labels import row_letters, seat_labels


class SeatLabelsTest(unittest.TestCase):
    def test_rows_are_letters_from_a(self) -> None:
        self.assertEqual(row_letters(3), ["A", "B", "C"])

    def test_two_rows_of_two_seats(self) -> None:
        self.assertEqual(seat_labels(2, 2), ["A1", "A2", "B1", "B2"])

    def test_a_hall_without_rows_has_no_seats(self) -> None:
        self.assertEqual(seat_labels(0, 10), [])

    def test_too_many_rows_are_refused(self) -> None:
        with self.assertRaises(ValueError):
            seat_labels(27, 1)


if __name__ == "__main__":
    unittest.main()
