"""Tests that come with the program."""

import unittest

from bank_statement import Summary, summarise


class BankStatementTest(unittest.TestCase):
    def test_money_in_and_out(self) -> None:
        summary = summarise([5000, -1200])
        self.assertEqual((summary.paid_in, summary.paid_out), (5000, 1200))

    def test_a_statement_without_bookings(self) -> None:
        self.assertEqual(summarise([]), Summary(0, 0, 0))

    def test_payments_in_are_free(self) -> None:
        self.assertEqual(summarise([100, 200, 300]).fees, 0)

    def test_one_payment_each_way(self) -> None:
        self.assertEqual(summarise([5000, -1200]).change, 3770)


if __name__ == "__main__":
    unittest.main()
