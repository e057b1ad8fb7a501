import unittest

from csv_line import split_line


class HiddenCsvLineTest(unittest.TestCase):
    def test_an_inch_mark_before_a_comma(self) -> None:
        self.assertEqual(split_line('"5"" pipe, steel",12'), ['5" pipe, steel', "12"])

    def test_a_field_of_one_quote(self) -> None:
        self.assertEqual(split_line('"""",x'), ['"', "x"])

    def test_empty_fields(self) -> None:
        self.assertEqual(split_line(",,"), ["", "", ""])

    def test_an_empty_quoted_field(self) -> None:
        self.assertEqual(split_line('"",x'), ["", "x"])

    def test_another_separator(self) -> None:
        self.assertEqual(split_line('1,5;"2;5"', separator=";"), ["1,5", "2;5"])

    def test_an_empty_line_has_one_field(self) -> None:
        self.assertEqual(split_line(""), [""])


if __name__ == "__main__":
    unittest.main()
