"""Tests that judge a repair; the solver does not see them."""

import unittest

from discount_stack import discounted, remaining_share


class DiscountedHiddenTest(unittest.TestCase):
    def test_one_discount(self) -> None:
        self.assertEqual(discounted(19.98, [50]), 9.99)

    def test_the_order_does_not_matter(self) -> None:
        self.assertEqual(discounted(120.0, [5, 30]), discounted(120.0, [30, 5]))
        self.assertEqual(discounted(120.0, [5, 30]), 79.8)

    def test_a_free_article(self) -> None:
        self.assertEqual(discounted(10.0, [20, 100]), 0.0)

    def test_a_discount_of_nothing_changes_nothing(self) -> None:
        self.assertEqual(discounted(33.0, [0, 0, 0]), 33.0)

    def test_the_ends_of_the_scale(self) -> None:
        self.assertEqual((remaining_share(0), remaining_share(100)), (1.0, 0.0))

    def test_any_iterable_will_do(self) -> None:
        self.assertEqual(discounted(200.0, (percent for percent in (50, 50))), 50.0)


if __name__ == "__main__":
    unittest.main()
