"""Tests that judge a repair; the solver does not see them."""

import unittest

from stock_transfer import transfer


class TransferHiddenTest(unittest.TestCase):
    def test_goods_are_neither_made_nor_lost(self) -> None:
        for wanted in range(9):
            north, south = {"lamp": 5}, {"lamp": 2}
            with self.subTest(wanted=wanted):
                moved = transfer(north, south, "lamp", wanted)
                self.assertEqual(moved, min(wanted, 5))
                self.assertEqual(north.get("lamp", 0) + south["lamp"], 7)

    def test_an_emptied_article_leaves_the_list(self) -> None:
        north = {"lamp": 2, "desk": 1}
        transfer(north, {}, "lamp", 2)
        self.assertEqual(north, {"desk": 1})

    def test_asking_for_too_much_empties_the_shelf(self) -> None:
        north, south = {"lamp": 2}, {"lamp": 8}
        transfer(north, south, "lamp", 100)
        self.assertEqual((north, south), ({}, {"lamp": 10}))

    def test_moving_nothing_changes_nothing(self) -> None:
        north, south = {"lamp": 2}, {"desk": 3}
        self.assertEqual(transfer(north, south, "lamp", 0), 0)
        self.assertEqual((north, south), ({"lamp": 2}, {"desk": 3}))

    def test_other_articles_stay(self) -> None:
        north, south = {"lamp": 2, "sofa": 4}, {"sofa": 1}
        transfer(north, south, "lamp", 1)
        self.assertEqual((north["sofa"], south["sofa"]), (4, 1))


if __name__ == "__main__":
    unittest.main()
