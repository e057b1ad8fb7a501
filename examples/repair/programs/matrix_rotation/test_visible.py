import unittest

from matrix_rotation import rotate, rotate_clockwise, transpose


class MatrixRotationTest(unittest.TestCase):
    def test_transposes_a_rectangle(self) -> None:
        self.assertEqual(transpose([[1, 2, 3], [4, 5, 6]]), [[1, 4], [2, 5], [3, 6]])

    def test_a_quarter_turn_to_the_right(self) -> None:
        self.assertEqual(rotate_clockwise([[1, 2], [3, 4]]), [[3, 1], [4, 2]])

    def test_half_a_turn(self) -> None:
        self.assertEqual(rotate([[1, 2], [3, 4]], 2), [[4, 3], [2, 1]])

    def test_no_turn(self) -> None:
        self.assertEqual(rotate([[1, 2], [3, 4]], 0), [[1, 2], [3, 4]])


if __name__ == "__main__":
    unittest.main()
