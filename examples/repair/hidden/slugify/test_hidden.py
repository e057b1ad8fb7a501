import unittest

from slugify import slugify, unique_slug


class HiddenSlugifyTest(unittest.TestCase):
    def test_the_standard_length_leaves_no_hyphen(self) -> None:
        title = "a" * 39 + " and more"
        self.assertEqual(slugify(title), "a" * 39)

    def test_a_cut_within_a_word(self) -> None:
        self.assertEqual(slugify("wonderful", max_length=6), "wonder")

    def test_exact_length(self) -> None:
        self.assertEqual(slugify("ab cd", max_length=5), "ab-cd")

    def test_outer_signs_leave_no_hyphen(self) -> None:
        self.assertEqual(slugify("  (What?)  "), "what")

    def test_several_signs_make_one_hyphen(self) -> None:
        self.assertEqual(slugify("Salt & Pepper -- 2nd"), "salt-pepper-2nd")

    def test_no_letters_at_all(self) -> None:
        self.assertEqual(slugify("???"), "")

    def test_a_free_slug_is_kept(self) -> None:
        self.assertEqual(unique_slug("News", {"new"}), "news")


if __name__ == "__main__":
    unittest.main()
