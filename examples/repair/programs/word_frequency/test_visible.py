import unittest

from word_frequency import most_common, words


class WordFrequencyTest(unittest.TestCase):
    def test_counts_words(self) -> None:
        self.assertEqual(most_common("The cat saw the dog"), [("the", 2), ("cat", 1), ("dog", 1), ("saw", 1)])

    def test_keeps_an_apostrophe(self) -> None:
        self.assertEqual(words("Don't stop"), ["don't", "stop"])

    def test_two_spellings_of_one_word(self) -> None:
        self.assertEqual(most_common("caf\u00e9 cafe\u0301"), [("caf\u00e9", 2)])


if __name__ == "__main__":
    unittest.main()
