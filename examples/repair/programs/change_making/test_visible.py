import unittest

from change_making import fewest_coins


class ChangeMakingTest(unittest.TestCase):
    def test_common_coins(self) -> None:
        self.assertEqual(fewest_coins(8, [1, 2, 5]), [5, 2, 1])

    def test_the_largest_coin_is_not_always_best(self) -> None:
        self.assertEqual(fewest_coins(6, [1, 3, 4]), [3, 3])

    def test_an_impossible_amount(self) -> None:
        self.assertIsNone(fewest_coins(3, [2, 5]))

    def test_nothing_needs_no_coin(self) -> None:
        self.assertEqual(fewest_coins(0, [1, 2]), [])


if __name__ == "__main__":
    unittest.main()
