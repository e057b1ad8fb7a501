import unittest

from slugify import slugify, unique_slug


class SlugifyTest(unittest.TestCase):
    def test_words_are_joined(self) -> None:
        self.assertEqual(slugify("Hello, World!"), "hello-world")

    def test_accents_are_dropped(self) -> None:
        self.assertEqual(slugify("Crème brûlée"), "creme-brulee")

    def test_a_cut_between_words_leaves_no_hyphen(self) -> None:
        self.assertEqual(slugify("one two three", max_length=8), "one-two")

    def test_a_taken_slug_gets_a_number(self) -> None:
        self.assertEqual(unique_slug("News", {"news", "news-2"}), "news-3")


if __name__ == "__main__":
    unittest.main()
