import unittest

from roman_numerals import from_roman, to_roman


class RomanNumeralsTest(unittest.TestCase):
    def test_writes_a_year(self) -> None:
        self.assertEqual(to_roman(1994), "MCMXCIV")

    def test_reads_subtracted_symbols(self) -> None:
        self.assertEqual(from_roman("XIV"), 14)

    def test_reads_repeated_symbols(self) -> None:
        self.assertEqual(from_roman("VIII"), 8)

    def test_refuses_zero(self) -> None:
        with self.assertRaises(ValueError):
            to_roman(0)


if __name__ == "__main__":
    unittest.main()
