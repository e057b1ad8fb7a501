import unittest

from csv_line import split_line


class CsvLineTest(unittest.TestCase):
    def test_plain_fields(self) -> None:
        self.assertEqual(split_line("a,b,c"), ["a", "b", "c"])

    def test_a_quoted_separator(self) -> None:
        self.assertEqual(split_line('"Leeds, UK",3'), ["Leeds, UK", "3"])

    def test_a_doubled_quote(self) -> None:
        self.assertEqual(split_line('"a ""b"" c",1'), ['a "b" c', "1"])

    def test_an_unclosed_quote_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            split_line('1,"open')


if __name__ == "__main__":
    unittest.main()
