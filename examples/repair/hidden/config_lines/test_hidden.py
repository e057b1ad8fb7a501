"""Tests that judge a repair; the solver does not see them."""

import unittest

from config_lines import parse, parse_line


class ConfigLinesHiddenTest(unittest.TestCase):
    def test_an_indented_line_with_a_line_end(self) -> None:
        self.assertEqual(parse_line("\t width\t=\t80 \n"), ("width", "80"))

    def test_a_name_set_in_two_ways_is_one_name(self) -> None:
        self.assertEqual(parse(["width = 80", "width=100"]), {"width": "100"})

    def test_the_value_may_hold_the_sign(self) -> None:
        self.assertEqual(parse_line("rule=a = b"), ("rule", "a = b"))

    def test_an_empty_value(self) -> None:
        self.assertEqual(parse_line("title ="), ("title", ""))

    def test_a_setting_without_a_name(self) -> None:
        with self.assertRaises(ValueError):
            parse_line("  = 80")

    def test_a_name_of_two_words_keeps_its_blank(self) -> None:
        self.assertEqual(parse_line("line width = 80"), ("line width", "80"))


if __name__ == "__main__":
    unittest.main()
