"""Tests that come with the program."""

import unittest

from bill_split import pence, split_bill


class BillSplitTest(unittest.TestCase):
    def test_an_even_bill(self) -> None:
        self.assertEqual(split_bill(30.0, 3), [1000, 1000, 1000])

    def test_a_penny_left_over(self) -> None:
        self.assertEqual(split_bill(10.0, 3), [334, 333, 333])

    def test_pence_are_exact(self) -> None:
        self.assertEqual(pence(19.99), 1999)

    def test_nobody_pays(self) -> None:
        with self.assertRaises(ValueError):
            split_bill(10.0, 0)


if __name__ == "__main__":
    unittest.main()
