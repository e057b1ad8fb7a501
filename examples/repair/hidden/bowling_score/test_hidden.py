import unittest

from bowling_score import frame_scores, total_score


class HiddenBowlingScoreTest(unittest.TestCase):
    def test_the_perfect_game(self) -> None:
        self.assertEqual(total_score([10] * 12), 300)

    def test_spares_only(self) -> None:
        self.assertEqual(total_score([5, 5] * 10 + [5]), 150)

    def test_strike_then_spare(self) -> None:
        self.assertEqual(frame_scores([10, 7, 3, 2, 0] + [0, 0] * 7)[:3], [20, 12, 2])

    def test_two_strikes_in_a_row(self) -> None:
        self.assertEqual(frame_scores([10, 10, 4, 2] + [0, 0] * 7)[:3], [24, 16, 6])

    def test_a_strike_at_the_end(self) -> None:
        self.assertEqual(total_score([0, 0] * 9 + [10, 8, 1]), 19)

    def test_ten_pins_over_two_frames_are_no_spare(self) -> None:
        self.assertEqual(frame_scores([1, 6, 4, 3] + [0, 0] * 8)[:2], [7, 7])

    def test_nothing_hit(self) -> None:
        self.assertEqual(total_score([0] * 20), 0)


if __name__ == "__main__":
    unittest.main()
