"""Tests that come with the program."""

import unittest

from league_table import Club, leader, ranking


class LeagueTableTest(unittest.TestCase):
    def test_points_come_first(self) -> None:
        clubs = [Club("Ashby", 3, 2, 2), Club("Burton", 9, 4, 4), Club("Corby", 6, 3, 3)]
        self.assertEqual(ranking(clubs), ["Burton", "Corby", "Ashby"])

    def test_the_goal_difference_breaks_a_tie(self) -> None:
        clubs = [Club("Ashby", 6, 5, 4), Club("Burton", 6, 4, 1)]
        self.assertEqual(ranking(clubs), ["Burton", "Ashby"])

    def test_a_full_tie_is_broken_by_name(self) -> None:
        clubs = [Club("Corby", 1, 0, 0), Club("Ashby", 1, 0, 0)]
        self.assertEqual(ranking(clubs), ["Ashby", "Corby"])

    def test_an_empty_league_has_no_leader(self) -> None:
        self.assertIsNone(leader([]))


if __name__ == "__main__":
    unittest.main()
