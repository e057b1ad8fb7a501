"""Tests that come with the program."""

import unittest

from shipping_bands import postage


class PostageTest(unittest.TestCase):
    def test_a_light_letter(self) -> None:
        self.assertEqual(postage(40), 155)

    def test_a_parcel_within_a_band(self) -> None:
        self.assertEqual(postage(1200), 399)

    def test_the_limit_belongs_to_its_band(self) -> None:
        self.assertEqual(postage(750), 249)

    def test_too_heavy(self) -> None:
        with self.assertRaises(ValueError):
            postage(10_001)


if __name__ == "__main__":
    unittest.main()
