"""Tests that come with the program."""

import unittest

from crate_inspection import Crate, delivery_passes, passes


class CrateInspectionTest(unittest.TestCase):
    def test_a_good_delivery(self) -> None:
        self.assertTrue(delivery_passes([Crate("a", 100, 2), Crate("b", 80, 0)]))

    def test_a_bad_crate_behind_a_good_one(self) -> None:
        self.assertFalse(delivery_passes([Crate("a", 100, 2), Crate("b", 80, 40)]))

    def test_a_bad_first_crate(self) -> None:
        self.assertFalse(delivery_passes([Crate("a", 10, 9), Crate("b", 80, 0)]))

    def test_an_empty_crate_does_not_pass(self) -> None:
        self.assertFalse(passes(Crate("a", 0, 0)))


if __name__ == "__main__":
    unittest.main()
