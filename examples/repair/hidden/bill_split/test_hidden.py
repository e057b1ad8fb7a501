"""Tests that judge a repair; the solver does not see them."""

import unittest

from bill_split import pence, split_bill


class BillSplitHiddenTest(unittest.TestCase):
    def test_every_amount_keeps_its_pence(self) -> None:
        for amount in range(0, 3000, 7):
            self.assertEqual(pence(amount / 100), amount)

    def test_amounts_that_binary_fractions_miss(self) -> None:
        self.assertEqual([pence(amount) for amount in (0.29, 1.15, 8.2, 1110.1)], [29, 115, 820, 111010])

    def test_the_shares_add_up(self) -> None:
        for guests in range(1, 8):
            self.assertEqual(sum(split_bill(64.35, guests)), 6435)

    def test_shares_differ_by_at_most_a_penny(self) -> None:
        shares = split_bill(35.79, 6)
        self.assertLessEqual(max(shares) - min(shares), 1)

    def test_one_guest_pays_all(self) -> None:
        self.assertEqual(split_bill(4.35, 1), [435])

    def test_a_free_meal(self) -> None:
        self.assertEqual(split_bill(0.0, 2), [0, 0])

    def test_a_negative_bill_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            split_bill(-0.01, 2)


if __name__ == "__main__":
    unittest.main()
