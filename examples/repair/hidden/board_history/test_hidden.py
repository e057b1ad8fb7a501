import unittest

from board_history import Board


class HiddenBoardHistoryTest(unittest.TestCase):
    def test_undo_takes_back_one_move_only(self) -> None:
        board = Board()
        board.play(0, 0, "x")
        board.play(1, 1, "o")
        board.undo()
        self.assertEqual(board.lines(), ["x..", "...", "..."])

    def test_two_moves_in_one_row(self) -> None:
        board = Board(2)
        board.play(0, 0, "x")
        board.play(0, 1, "o")
        board.undo()
        board.undo()
        self.assertEqual(board.lines(), ["..", ".."])
        self.assertFalse(board.undo())

    def test_a_cell_is_free_after_undo(self) -> None:
        board = Board()
        board.play(2, 2, "x")
        board.undo()
        board.play(2, 2, "o")
        self.assertEqual(board.lines()[2], "..o")

    def test_a_refused_move_leaves_no_history(self) -> None:
        board = Board()
        board.play(0, 0, "x")
        with self.assertRaises(ValueError):
            board.play(0, 0, "o")
        self.assertTrue(board.undo())
        self.assertFalse(board.undo())

    def test_rows_are_separate(self) -> None:
        board = Board(2)
        board.play(0, 0, "x")
        self.assertEqual(board.lines(), ["x.", ".."])


if __name__ == "__main__":
    unittest.main()
