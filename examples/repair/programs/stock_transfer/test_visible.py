"""Tests that come with the program."""

import unittest

from stock_transfer import transfer


class TransferTest(unittest.TestCase):
    def test_some_of_the_stock_moves(self) -> None:
        north, south = {"lamp": 10}, {"lamp": 1}
        self.assertEqual(transfer(north, south, "lamp", 4), 4)
        self.assertEqual((north, south), ({"lamp": 6}, {"lamp": 5}))

    def test_no_more_moves_than_there_is(self) -> None:
        north, south = {"lamp": 3}, {"desk": 1}
        self.assertEqual(transfer(north, south, "lamp", 5), 3)
        self.assertEqual(south, {"desk": 1, "lamp": 3})

    def test_an_unknown_article(self) -> None:
        north, south = {"lamp": 3}, {"desk": 1}
        self.assertEqual(transfer(north, south, "sofa", 5), 0)
        self.assertEqual(south, {"desk": 1})

    def test_a_negative_number_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            transfer({"lamp": 1}, {}, "lamp", -1)


if __name__ == "__main__":
    unittest.main()
