import unittest

from change_making import fewest_coins


class HiddenChangeMakingTest(unittest.TestCase):
    def test_three_equal_coins(self) -> None:
        self.assertEqual(fewest_coins(30, [1, 10, 25]), [10, 10, 10])

    def test_coins_in_any_order(self) -> None:
        self.assertEqual(fewest_coins(14, [10, 1, 7]), [7, 7])

    def test_without_a_coin_of_one(self) -> None:
        self.assertEqual(fewest_coins(12, [5, 6, 7]), [7, 5])

    def test_one_coin(self) -> None:
        self.assertEqual(fewest_coins(5, [1, 5, 10]), [5])

    def test_no_coins(self) -> None:
        self.assertIsNone(fewest_coins(1, []))

    def test_a_worthless_coin_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            fewest_coins(1, [0, 1])

    def test_a_large_amount(self) -> None:
        change = fewest_coins(399, [1, 2, 5, 10, 20, 50, 100, 200])
        self.assertEqual(change, [200, 100, 50, 20, 20, 5, 2, 2])


if __name__ == "__main__":
    unittest.main()
