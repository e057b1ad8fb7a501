"""Tests that judge a repair; the solver does not see them."""

import unittest

from page_count import page_count, page_summary


class PageCountHiddenTest(unittest.TestCase):
    def test_fewer_items_than_fit_on_a_page(self) -> None:
        self.assertEqual(page_count(1, 25), 1)

    def test_around_a_full_page(self) -> None:
        self.assertEqual([page_count(items, 4) for items in (7, 8, 9)], [2, 2, 3])

    def test_one_item_on_each_page(self) -> None:
        self.assertEqual(page_count(17, 1), 17)

    def test_large_listings_are_counted_exactly(self) -> None:
        self.assertEqual(page_count(10**18 + 1, 10), 10**17 + 1)

    def test_the_summary_knows_the_singular(self) -> None:
        self.assertEqual(page_summary(3, 10), "1 page")

    def test_a_count_is_a_whole_number(self) -> None:
        self.assertIsInstance(page_count(20, 10), int)

    def test_a_negative_listing_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            page_count(-1, 10)


if __name__ == "__main__":
    unittest.main()
