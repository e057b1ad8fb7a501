"""Tests that judge a repair; the solver does not see them."""

import unittest

from address_label import Address, label, longest_line


class AddressLabelHiddenTest(unittest.TestCase):
    def test_a_home_label_has_four_lines(self) -> None:
        self.assertEqual(len(label(Address("A", "B", "C", "D")).split("\n")), 4)

    def test_the_width_of_a_home_label(self) -> None:
        self.assertEqual(longest_line(Address("Augustus Carp", "1 A St", "Ely", "CB7")), 13)

    def test_the_word_none_is_never_printed(self) -> None:
        self.assertNotIn("NONE", label(Address("A", "B", "C", "D")).upper())

    def test_a_foreign_label_ends_with_the_country(self) -> None:
        self.assertTrue(label(Address("A", "B", "C", "D", "Norge")).endswith("\nNORGE"))

    def test_name_and_street_keep_their_case(self) -> None:
        self.assertTrue(label(Address("de Vries", "Kade 4", "Delft", "2611", "nl")).startswith("de Vries\nKade 4\n"))


if __name__ == "__main__":
    unittest.main()
