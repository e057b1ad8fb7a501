import unittest

from balanced_brackets import first_problem, is_balanced


class BalancedBracketsTest(unittest.TestCase):
    def test_nested_brackets_of_two_kinds(self) -> None:
        self.assertTrue(is_balanced("([])"))

    def test_a_wrong_partner(self) -> None:
        self.assertFalse(is_balanced("(]"))

    def test_text_without_brackets(self) -> None:
        self.assertIsNone(first_problem("no brackets here"))

    def test_a_bracket_left_open(self) -> None:
        self.assertEqual(first_problem("ab(c"), 2)


if __name__ == "__main__":
    unittest.main()
