import unittest

from pagination import Page, page, page_count


class HiddenPaginationTest(unittest.TestCase):
    def test_one_result_a_page(self) -> None:
        self.assertEqual(page_count(7, 1), 7)

    def test_one_full_page(self) -> None:
        self.assertEqual(page_count(20, 20), 1)

    def test_one_result_more_than_a_page(self) -> None:
        self.assertEqual(page_count(21, 20), 2)

    def test_too_high_a_number_gives_the_last_page(self) -> None:
        self.assertEqual(page(99, 40, 20), Page(2, 21, 40))

    def test_too_low_a_number_gives_the_first_page(self) -> None:
        self.assertEqual(page(0, 3, 20), Page(1, 1, 3))

    def test_an_empty_page(self) -> None:
        self.assertEqual(page(4, 0, 20), Page(1, 0, 0))

    def test_a_page_without_room(self) -> None:
        with self.assertRaises(ValueError):
            page_count(1, 0)

    def test_the_last_page_ends_with_the_results(self) -> None:
        self.assertEqual(page(3, 25, 10), Page(3, 21, 25))


if __name__ == "__main__":
    unittest.main()
