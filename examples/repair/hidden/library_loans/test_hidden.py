"""Tests that judge a repair; the solver does not see them."""

import unittest

from library_loans import Loan, may_renew, renewable


class LibraryLoansHiddenTest(unittest.TestCase):
    def test_a_reserved_book_may_not_be_renewed(self) -> None:
        self.assertFalse(may_renew(Loan("Emma", reserved=True)))

    def test_the_last_renewal(self) -> None:
        self.assertTrue(may_renew(Loan("Emma", renewals=2)))

    def test_each_reason_is_enough_to_refuse(self) -> None:
        refused = [Loan("a", 3), Loan("b", 0, True), Loan("c", 0, False, 1), Loan("d", 4, True, 9)]
        self.assertEqual(renewable(refused), [])

    def test_titles_are_sorted(self) -> None:
        self.assertEqual(renewable([Loan("b"), Loan("c"), Loan("a")]), ["a", "b", "c"])

    def test_no_loans(self) -> None:
        self.assertEqual(renewable([]), [])


if __name__ == "__main__":
    unittest.main()
