"""Tests that come with the program."""

import unittest

from library_loans import Loan, may_renew, renewable


class LibraryLoansTest(unittest.TestCase):
    def test_a_fresh_loan_may_be_renewed(self) -> None:
        self.assertTrue(may_renew(Loan("Middlemarch")))

    def test_an_overdue_loan_may_not(self) -> None:
        self.assertFalse(may_renew(Loan("Emma", overdue_days=2)))

    def test_three_renewals_are_enough(self) -> None:
        self.assertFalse(may_renew(Loan("Persuasion", renewals=3)))

    def test_reserved_books_go_back(self) -> None:
        loans = [Loan("Silas Marner"), Loan("Ivanhoe", reserved=True), Loan("Cranford", renewals=2)]
        self.assertEqual(renewable(loans), ["Cranford", "Silas Marner"])


if __name__ == "__main__":
    unittest.main()
