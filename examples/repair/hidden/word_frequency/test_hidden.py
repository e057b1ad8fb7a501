import unittest

from word_frequency import most_common, words


class HiddenWordFrequencyTest(unittest.TestCase):
    def test_an_accent_in_the_middle_does_not_split_a_word(self) -> None:
        self.assertEqual(words("Mu\u0308nchen"), ["m\u00fcnchen"])

    def test_capital_letters_with_accents(self) -> None:
        self.assertEqual(most_common("\u00c9T\u00c9 e\u0301te\u0301"), [("\u00e9t\u00e9", 2)])

    def test_sharp_s_is_folded(self) -> None:
        self.assertEqual(words("Stra\u00dfe STRASSE"), ["strasse", "strasse"])

    def test_equal_counts_are_alphabetical(self) -> None:
        self.assertEqual(most_common("pear fig apple"), [("apple", 1), ("fig", 1), ("pear", 1)])

    def test_the_limit(self) -> None:
        self.assertEqual(most_common("a a b b c", limit=1), [("a", 2)])

    def test_no_words(self) -> None:
        self.assertEqual(most_common(" ... "), [])


if __name__ == "__main__":
    unittest.main()
