import unittest

from account_ledger import Account


class AccountLedgerTest(unittest.TestCase):
    def test_a_covered_withdrawal_is_free(self) -> None:
        account = Account(balance=5_000)
        account.withdraw(2_000)
        self.assertEqual(account.balance, 3_000)

    def test_overdrawing_costs_a_fee(self) -> None:
        account = Account(balance=1_000)
        account.withdraw(3_000)
        self.assertEqual(account.balance, -2_500)

    def test_the_limit_holds(self) -> None:
        account = Account(overdraft_limit=1_000)
        with self.assertRaises(ValueError):
            account.withdraw(1_001)


if __name__ == "__main__":
    unittest.main()
