"""Tests that judge a repair; the solver does not see them."""

import unittest
from decimal import Decimal

from currency_desk import convert, cross_rate

RATES = {"GBP": Decimal(1), "EUR": Decimal("0.8"), "CHF": Decimal("0.9"), "JPY": Decimal("0.005")}


class CurrencyDeskHiddenTest(unittest.TestCase):
    def test_through_the_home_currency(self) -> None:
        self.assertEqual(convert(Decimal(40), "CHF", "EUR", RATES), Decimal("45.00"))

    def test_pounds_into_yen(self) -> None:
        self.assertEqual(convert(Decimal("2.50"), "GBP", "JPY", RATES), Decimal("500.00"))

    def test_there_and_back(self) -> None:
        euros = convert(Decimal(64), "GBP", "EUR", RATES)
        self.assertEqual(convert(euros, "EUR", "GBP", RATES), Decimal("64.00"))

    def test_halves_are_rounded_up(self) -> None:
        self.assertEqual(convert(Decimal(1), "JPY", "GBP", RATES), Decimal("0.01"))

    def test_nothing_converts_to_nothing(self) -> None:
        self.assertEqual(convert(Decimal(0), "EUR", "JPY", RATES), Decimal("0.00"))

    def test_rates_of_two_foreign_currencies(self) -> None:
        self.assertEqual(cross_rate("CHF", "EUR", RATES), Decimal("1.125"))

    def test_an_unknown_currency(self) -> None:
        with self.assertRaises(KeyError):
            convert(Decimal(1), "GBP", "XXX", RATES)


if __name__ == "__main__":
    unittest.main()
