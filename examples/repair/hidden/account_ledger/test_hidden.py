import unittest

from account_ledger import Account


class HiddenAccountLedgerTest(unittest.TestCase):
    def test_the_fee_follows_the_withdrawal(self) -> None:
        account = Account()
        account.withdraw(700)
        self.assertEqual(account.entries, [("withdrawal", -700), ("fee", -500)])

    def test_each_overdrawn_withdrawal_costs_a_fee(self) -> None:
        account = Account()
        account.withdraw(100)
        account.withdraw(100)
        self.assertEqual(account.balance, -1_200)

    def test_emptying_the_account_is_free(self) -> None:
        account = Account(balance=900)
        account.withdraw(900)
        self.assertEqual(account.entries, [("withdrawal", -900)])

    def test_a_refused_withdrawal_changes_nothing(self) -> None:
        account = Account(overdraft_limit=0, balance=50)
        with self.assertRaises(ValueError):
            account.withdraw(51)
        self.assertEqual((account.balance, account.entries), (50, []))

    def test_the_limit_may_be_reached_by_the_amount(self) -> None:
        account = Account(overdraft_limit=1_000)
        account.withdraw(1_000)
        self.assertEqual(account.balance, -1_500)

    def test_deposits_must_be_positive(self) -> None:
        with self.assertRaises(ValueError):
            Account().deposit(0)

    def test_accounts_share_no_entries(self) -> None:
        first, second = Account(), Account()
        first.deposit(1)
        self.assertEqual(second.entries, [])


if __name__ == "__main__":
    unittest.main()
