import unittest

from price_rules import cheapest_group, discount_rules


class PriceRulesTest(unittest.TestCase):
    def test_one_group(self) -> None:
        self.assertEqual(discount_rules({"staff": 25})["staff"](1_000), 750)

    def test_each_group_has_its_own_discount(self) -> None:
        rules = discount_rules({"student": 10, "staff": 30})
        self.assertEqual((rules["student"](200), rules["staff"](200)), (180, 140))

    def test_no_group(self) -> None:
        self.assertIsNone(cheapest_group(500, {}))

    def test_more_than_everything_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            discount_rules({"staff": 101})


if __name__ == "__main__":
    unittest.main()
