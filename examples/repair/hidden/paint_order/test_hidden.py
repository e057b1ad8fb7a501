"""Tests that judge a repair; the solver does not see them."""

import unittest

from paint_order import Room, litres, wall_area


class PaintOrderHiddenTest(unittest.TestCase):
    def test_a_narrow_corridor(self) -> None:
        self.assertAlmostEqual(wall_area(Room(9.0, 1.5, 2.0)), 42.0)

    def test_length_and_width_are_interchangeable(self) -> None:
        self.assertEqual(wall_area(Room(6.0, 2.0, 3.0, 4.0)), wall_area(Room(2.0, 6.0, 3.0, 4.0)))

    def test_part_of_a_litre_is_a_whole_tin(self) -> None:
        self.assertEqual(litres(Room(5.0, 3.0, 2.0, openings=1.0), coats=1), 4)

    def test_three_coats(self) -> None:
        self.assertEqual(litres(Room(7.0, 3.0, 2.5), coats=3), 15)

    def test_a_room_of_glass_needs_no_paint(self) -> None:
        self.assertEqual(litres(Room(2.0, 2.0, 2.0, openings=16.0)), 0)

    def test_a_bare_wall_between_two_points(self) -> None:
        self.assertAlmostEqual(wall_area(Room(3.0, 0.0, 2.0)), 12.0)


if __name__ == "__main__":
    unittest.main()
