"""Tests that judge a repair; the solver does not see them."""

import unittest

from seat_labels import row_letters, seat_labels


class SeatLabelsHiddenTest(unittest.TestCase):
    def test_one_seat_is_a1(self) -> None:
        self.assertEqual(seat_labels(1, 1), ["A1"])

    def test_rows_without_seats_give_no_labels(self) -> None:
        self.assertEqual(seat_labels(4, 0), [])

    def test_every_seat_has_exactly_one_label(self) -> None:
        labels = seat_labels(5, 7)
        self.assertEqual(len(labels), 35)
        self.assertEqual(len(set(labels)), 35)

    def test_first_and_last_label(self) -> None:
        labels = seat_labels(26, 12)
        self.assertEqual((labels[0], labels[-1]), ("A1", "Z12"))

    def test_a_negative_number_of_rows_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            row_letters(-1)


if __name__ == "__main__":
    unittest.main()
