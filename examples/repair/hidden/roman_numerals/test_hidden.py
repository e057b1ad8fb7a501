import unittest

from roman_numerals import from_roman, to_roman


class HiddenRomanNumeralsTest(unittest.TestCase):
    def test_reads_two_equal_symbols(self) -> None:
        self.assertEqual(from_roman("MM"), 2000)

    def test_reads_the_largest(self) -> None:
        self.assertEqual(from_roman("MMMCMXCIX"), 3999)

    def test_reads_lower_case(self) -> None:
        self.assertEqual(from_roman("xlii"), 42)

    def test_reading_undoes_writing(self) -> None:
        for number in range(1, 400):
            with self.subTest(number=number):
                self.assertEqual(from_roman(to_roman(number)), number)

    def test_refuses_four_thousand(self) -> None:
        with self.assertRaises(ValueError):
            to_roman(4000)

    def test_the_empty_text_is_nothing(self) -> None:
        self.assertEqual(from_roman(""), 0)


if __name__ == "__main__":
    unittest.main()
