"""Tests that come with the program."""

import unittest

from address_label import Address, label, longest_line


class AddressLabelTest(unittest.TestCase):
    def test_an_address_abroad(self) -> None:
        address = Address("M. Dupont", "3 rue Haute", "Lyon", "69001", "France")
        self.assertEqual(label(address), "M. Dupont\n3 rue Haute\nLYON\n69001\nFRANCE")

    def test_an_address_at_home(self) -> None:
        address = Address("J. Smith", "7 Mill Lane", "Bath", "ba1 1aa")
        self.assertEqual(label(address), "J. Smith\n7 Mill Lane\nBATH\nBA1 1AA")

    def test_the_width_of_a_label(self) -> None:
        self.assertEqual(longest_line(Address("Li", "1 A St", "X", "9", "New Zealand")), 11)


if __name__ == "__main__":
    unittest.main()
