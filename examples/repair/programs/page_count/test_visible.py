"""Tests that come with the program."""

import unittest

from page_count import page_count, page_summary


class PageCountTest(unittest.TestCase):
    def test_full_pages(self) -> None:
        self.assertEqual(page_count(30, 10), 3)

    def test_the_last_page_may_be_short(self) -> None:
        self.assertEqual(page_count(31, 10), 4)

    def test_an_empty_listing(self) -> None:
        self.assertEqual(page_summary(0, 10), "0 pages")

    def test_pages_of_nothing_are_refused(self) -> None:
        with self.assertRaises(ValueError):
            page_count(5, 0)


if __name__ == "__main__":
    unittest.main()
