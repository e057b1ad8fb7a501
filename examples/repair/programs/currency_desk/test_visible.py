"""Tests that come with the program."""

import unittest
from decimal import Decimal

from currency_desk import convert, cross_rate

RATES = {"GBP": Decimal(1), "EUR": Decimal("0.8"), "CHF": Decimal("0.9")}


class CurrencyDeskTest(unittest.TestCase):
    def test_euros_into_pounds(self) -> None:
        self.assertEqual(convert(Decimal(100), "EUR", "GBP", RATES), Decimal("80.00"))

    def test_the_same_currency(self) -> None:
        self.assertEqual(convert(Decimal("12.34"), "CHF", "CHF", RATES), Decimal("12.34"))

    def test_the_rate_of_pounds_in_euros(self) -> None:
        self.assertEqual(cross_rate("GBP", "EUR", RATES), Decimal("1.25"))

    def test_a_negative_amount_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            convert(Decimal(-1), "GBP", "EUR", RATES)


if __name__ == "__main__":
    unittest.main()
