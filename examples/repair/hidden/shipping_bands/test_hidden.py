"""Tests that judge a repair; the solver does not see them."""

import unittest
from itertools import pairwise

from shipping_bands import BANDS, postage


class PostageHiddenTest(unittest.TestCase):
    def test_each_limit_pays_its_own_band(self) -> None:
        for band in BANDS:
            with self.subTest(limit=band.limit_g):
                self.assertEqual(postage(band.limit_g), band.price_p)

    def test_one_gram_more_pays_the_next_band(self) -> None:
        for band, following in pairwise(BANDS):
            with self.subTest(limit=band.limit_g):
                self.assertEqual(postage(band.limit_g + 1), following.price_p)

    def test_the_heaviest_parcel_is_accepted(self) -> None:
        self.assertEqual(postage(10_000), 699)

    def test_the_lightest_parcel(self) -> None:
        self.assertEqual(postage(1), 155)

    def test_no_weight_is_refused(self) -> None:
        for weight in (0, -5):
            with self.subTest(weight=weight), self.assertRaises(ValueError):
                postage(weight)


if __name__ == "__main__":
    unittest.main()
