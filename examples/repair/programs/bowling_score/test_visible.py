import unittest

from bowling_score import frame_scores, total_score


class BowlingScoreTest(unittest.TestCase):
    def test_open_frames(self) -> None:
        self.assertEqual(total_score([3, 4] * 10), 70)

    def test_a_spare_counts_the_next_ball(self) -> None:
        self.assertEqual(frame_scores([6, 4, 5, 0] + [0, 0] * 8)[:2], [15, 5])

    def test_a_strike_counts_the_next_two_balls(self) -> None:
        self.assertEqual(frame_scores([10, 3, 4] + [0, 0] * 8)[:2], [17, 7])

    def test_ten_frames(self) -> None:
        self.assertEqual(len(frame_scores([1, 1] * 10)), 10)


if __name__ == "__main__":
    unittest.main()
