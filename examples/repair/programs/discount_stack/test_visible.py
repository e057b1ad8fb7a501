"""Tests that come with the program."""

import unittest

from discount_stack import discounted, remaining_share


class DiscountedTest(unittest.TestCase):
    def test_no_discount(self) -> None:
        self.assertEqual(discounted(80.0, []), 80.0)

    def test_two_discounts_stack(self) -> None:
        self.assertEqual(discounted(50.0, [10, 20]), 36.0)

    def test_the_share_that_is_left(self) -> None:
        self.assertEqual(remaining_share(25), 0.75)

    def test_more_than_everything_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            discounted(50.0, [101])


if __name__ == "__main__":
    unittest.main()
