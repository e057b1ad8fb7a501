import unittest

from price_rules import cheapest_group, discount_rules


class HiddenPriceRulesTest(unittest.TestCase):
    def test_three_groups(self) -> None:
        rules = discount_rules({"guest": 0, "member": 5, "owner": 100})
        self.assertEqual([rule(400) for rule in rules.values()], [400, 380, 0])

    def test_the_cheapest_group(self) -> None:
        rules = discount_rules({"guest": 0, "member": 20, "student": 15})
        self.assertEqual(cheapest_group(1_000, rules), "member")

    def test_the_first_of_equals(self) -> None:
        self.assertEqual(cheapest_group(100, discount_rules({"a": 7, "b": 7})), "a")

    def test_the_reduction_is_rounded_down(self) -> None:
        self.assertEqual(discount_rules({"member": 10})["member"](99), 90)

    def test_a_negative_discount_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            discount_rules({"guest": -1})

    def test_two_sets_of_rules_are_independent(self) -> None:
        first = discount_rules({"guest": 50})
        discount_rules({"guest": 10})
        self.assertEqual(first["guest"](10), 5)


if __name__ == "__main__":
    unittest.main()
