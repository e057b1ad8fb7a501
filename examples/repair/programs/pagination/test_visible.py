import unittest

from pagination import Page, page, page_count


class PaginationTest(unittest.TestCase):
    def test_the_last_page_may_be_short(self) -> None:
        self.assertEqual(page_count(25, 10), 3)

    def test_full_pages(self) -> None:
        self.assertEqual(page_count(30, 10), 3)

    def test_no_results_make_one_page(self) -> None:
        self.assertEqual(page_count(0, 10), 1)

    def test_what_the_second_page_shows(self) -> None:
        self.assertEqual(page(2, 25, 10), Page(2, 11, 20))


if __name__ == "__main__":
    unittest.main()
