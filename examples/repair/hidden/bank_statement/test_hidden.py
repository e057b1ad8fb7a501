"""Tests that judge a repair; the solver does not see them."""

import unittest

from bank_statement import Summary, summarise


class BankStatementHiddenTest(unittest.TestCase):
    def test_each_payment_out_costs_a_fee(self) -> None:
        self.assertEqual(summarise([-100, -200, -300]), Summary(0, 600, 90))

    def test_a_mixed_month(self) -> None:
        self.assertEqual(summarise([1000, -10, 20, -30, 40]), Summary(1060, 40, 60))

    def test_the_change_counts_fees(self) -> None:
        self.assertEqual(summarise([-70]).change, -100)

    def test_a_booking_of_nothing_is_free(self) -> None:
        self.assertEqual(summarise([0]), Summary(0, 0, 0))

    def test_the_order_does_not_matter(self) -> None:
        self.assertEqual(summarise([500, -20, -7]), summarise([-7, 500, -20]))

    def test_any_iterable_will_do(self) -> None:
        self.assertEqual(summarise(iter([-1])).fees, 30)


if __name__ == "__main__":
    unittest.main()
