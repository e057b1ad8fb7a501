"""Tests that come with the program."""

import unittest

from config_lines import parse, parse_line


class ConfigLinesTest(unittest.TestCase):
    def test_blanks_around_the_sign(self) -> None:
        self.assertEqual(parse_line("colour = dark green"), ("colour", "dark green"))

    def test_no_blanks_at_all(self) -> None:
        self.assertEqual(parse(["colour=red", "width=80"]), {"colour": "red", "width": "80"})

    def test_comments_and_blank_lines(self) -> None:
        self.assertEqual(parse(["# colours", "", "   ", "  # more"]), {})

    def test_a_line_without_a_sign(self) -> None:
        with self.assertRaises(ValueError):
            parse_line("colour")


if __name__ == "__main__":
    unittest.main()
