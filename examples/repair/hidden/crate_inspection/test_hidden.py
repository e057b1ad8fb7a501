"""Tests that judge a repair; the solver does not see them."""

import unittest

from crate_inspection import Crate, delivery_passes, first_fault, passes

GOOD = Crate("good", 100, 0)
BAD = Crate("bad", 100, 50)


class CrateInspectionHiddenTest(unittest.TestCase):
    def test_the_bad_crate_is_found_wherever_it_stands(self) -> None:
        for place in range(4):
            crates = [GOOD] * 4
            crates[place] = BAD
            with self.subTest(place=place):
                self.assertFalse(delivery_passes(crates))

    def test_the_first_of_several_bad_crates_is_named(self) -> None:
        self.assertEqual(first_fault([GOOD, Crate("17", 10, 5), BAD]), "17")

    def test_no_crates_are_no_fault(self) -> None:
        self.assertTrue(delivery_passes([]))

    def test_many_good_crates(self) -> None:
        self.assertTrue(delivery_passes([GOOD] * 20))

    def test_five_per_cent_is_still_good(self) -> None:
        self.assertTrue(passes(Crate("a", 100, 5)))
        self.assertFalse(passes(Crate("a", 100, 6)))

    def test_an_empty_crate_fails_the_delivery(self) -> None:
        self.assertFalse(delivery_passes([GOOD, GOOD, Crate("empty", 0, 0)]))


if __name__ == "__main__":
    unittest.main()
