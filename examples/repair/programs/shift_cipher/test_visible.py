import unittest

from shift_cipher import decrypt, encrypt


class ShiftCipherTest(unittest.TestCase):
    def test_moves_letters(self) -> None:
        self.assertEqual(encrypt("abc", 2), "cde")

    def test_goes_round_and_keeps_case(self) -> None:
        self.assertEqual(encrypt("xyZ", 3), "abC")

    def test_leaves_letters_with_accents(self) -> None:
        self.assertEqual(encrypt("café", 1), "dbgé")

    def test_decrypts(self) -> None:
        self.assertEqual(decrypt("Khoor, Zruog!", 3), "Hello, World!")


if __name__ == "__main__":
    unittest.main()
