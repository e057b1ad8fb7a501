import unittest

from matrix_rotation import rotate, rotate_clockwise, transpose


class HiddenMatrixRotationTest(unittest.TestCase):
    def test_the_first_row_becomes_the_last_column(self) -> None:
        turned = rotate_clockwise([[1, 2, 3], [4, 5, 6]])
        self.assertEqual([row[-1] for row in turned], [1, 2, 3])
        self.assertEqual([row[0] for row in turned], [4, 5, 6])

    def test_a_quarter_turn_to_the_left(self) -> None:
        self.assertEqual(rotate([[1, 2, 3], [4, 5, 6]], -1), [[3, 6], [2, 5], [1, 4]])

    def test_five_turns_are_one(self) -> None:
        self.assertEqual(rotate([[7, 8, 9]], 5), [[7], [8], [9]])

    def test_a_column_becomes_a_row(self) -> None:
        self.assertEqual(rotate([[1], [2], [3]], 1), [[3, 2, 1]])

    def test_four_turns_change_nothing(self) -> None:
        self.assertEqual(rotate([[1, 2], [3, 4], [5, 6]], 4), [[1, 2], [3, 4], [5, 6]])

    def test_transposing_twice_changes_nothing(self) -> None:
        self.assertEqual(transpose(transpose([[1, 2], [3, 4], [5, 6]])), [[1, 2], [3, 4], [5, 6]])

    def test_the_result_is_a_copy(self) -> None:
        matrix = [[1, 2], [3, 4]]
        rotate(matrix, 0)[0][0] = 99
        self.assertEqual(matrix, [[1, 2], [3, 4]])


if __name__ == "__main__":
    unittest.main()
