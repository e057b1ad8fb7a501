"""Tests that judge a repair; the solver does not see them."""

import unittest

from league_table import Club, leader, ranking


class LeagueTableHiddenTest(unittest.TestCase):
    def test_few_goals_against_beat_many_goals_for(self) -> None:
        clubs = [Club("Derby", 4, 9, 9), Club("Epsom", 4, 2, 1)]
        self.assertEqual(leader(clubs), "Epsom")

    def test_negative_differences_are_ordered_too(self) -> None:
        clubs = [Club("Fleet", 0, 6, 12), Club("Goole", 0, 1, 3)]
        self.assertEqual(ranking(clubs), ["Goole", "Fleet"])

    def test_equal_differences_go_by_name_however_many_goals_fell(self) -> None:
        clubs = [Club("Fleet", 2, 7, 6), Club("Derby", 2, 1, 0)]
        self.assertEqual(ranking(clubs), ["Derby", "Fleet"])

    def test_points_outweigh_any_difference(self) -> None:
        clubs = [Club("Derby", 4, 40, 0), Club("Epsom", 5, 0, 40)]
        self.assertEqual(leader(clubs), "Epsom")

    def test_the_input_keeps_its_order(self) -> None:
        clubs = [Club("Derby", 0, 0, 0), Club("Corby", 9, 0, 0)]
        ranking(clubs)
        self.assertEqual(clubs[0].name, "Derby")

    def test_an_empty_table(self) -> None:
        self.assertEqual(ranking([]), [])


if __name__ == "__main__":
    unittest.main()
