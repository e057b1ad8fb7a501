import unittest

from balanced_brackets import first_problem, is_balanced


class HiddenBalancedBracketsTest(unittest.TestCase):
    def test_deep_nesting(self) -> None:
        self.assertTrue(is_balanced("{[({})]}"))

    def test_a_line_of_code(self) -> None:
        self.assertTrue(is_balanced("rows[f(x, {1: (2)})]"))

    def test_crossed_brackets_are_found_at_the_first_close(self) -> None:
        self.assertEqual(first_problem("([)]"), 2)

    def test_a_close_without_an_open(self) -> None:
        self.assertEqual(first_problem("())"), 2)

    def test_the_innermost_open_bracket_is_reported(self) -> None:
        self.assertEqual(first_problem("(a[b"), 2)

    def test_the_outer_bracket_remains_open(self) -> None:
        self.assertEqual(first_problem("{(x)"), 0)

    def test_empty_text(self) -> None:
        self.assertTrue(is_balanced(""))


if __name__ == "__main__":
    unittest.main()
