import unittest

from board_history import Board


class BoardHistoryTest(unittest.TestCase):
    def test_a_move(self) -> None:
        board = Board()
        board.play(1, 0, "x")
        self.assertEqual(board.lines(), ["...", "x..", "..."])

    def test_a_taken_cell_is_refused(self) -> None:
        board = Board()
        board.play(0, 0, "x")
        with self.assertRaises(ValueError):
            board.play(0, 0, "o")

    def test_undo_takes_the_move_back(self) -> None:
        board = Board(2)
        board.play(0, 1, "x")
        self.assertTrue(board.undo())
        self.assertEqual(board.lines(), ["..", ".."])

    def test_nothing_to_undo(self) -> None:
        self.assertFalse(Board().undo())


if __name__ == "__main__":
    unittest.main()
