import unittest

from shift_cipher import decrypt, encrypt


class HiddenShiftCipherTest(unittest.TestCase):
    def test_leaves_other_alphabets(self) -> None:
        self.assertEqual(encrypt("π and Ж", 1), "π boe Ж")

    def test_accented_capitals_stay(self) -> None:
        self.assertEqual(encrypt("ÉA", 25), "ÉZ")

    def test_leaves_digits_and_signs(self) -> None:
        self.assertEqual(encrypt("10-4, 7!", 9), "10-4, 7!")

    def test_keys_beyond_the_alphabet(self) -> None:
        self.assertEqual(encrypt("Az", 27), "Ba")

    def test_decrypting_undoes_encrypting(self) -> None:
        for key in (-30, -1, 0, 13, 99):
            with self.subTest(key=key):
                self.assertEqual(decrypt(encrypt("Mind the Gap - naïve", key), key), "Mind the Gap - naïve")


if __name__ == "__main__":
    unittest.main()
