"""Tests that come with the program."""

import unittest

from paint_order import Room, litres, wall_area


class PaintOrderTest(unittest.TestCase):
    def test_a_square_room(self) -> None:
        self.assertAlmostEqual(wall_area(Room(4.0, 4.0, 2.5)), 40.0)

    def test_an_oblong_room(self) -> None:
        self.assertAlmostEqual(wall_area(Room(5.0, 3.0, 2.0, openings=2.0)), 30.0)

    def test_two_coats(self) -> None:
        self.assertEqual(litres(Room(4.0, 4.0, 2.5)), 8)

    def test_openings_larger_than_the_walls(self) -> None:
        with self.assertRaises(ValueError):
            wall_area(Room(1.0, 1.0, 1.0, openings=5.0))


if __name__ == "__main__":
    unittest.main()
