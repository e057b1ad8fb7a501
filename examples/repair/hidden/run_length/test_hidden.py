import unittest

from run_length import Run, decode, encode


class HiddenRunLengthTest(unittest.TestCase):
    def test_one_character(self) -> None:
        self.assertEqual(encode("z"), [Run("z", 1)])

    def test_one_long_run(self) -> None:
        self.assertEqual(encode("-" * 40), [Run("-", 40)])

    def test_a_character_may_come_back(self) -> None:
        self.assertEqual(encode("aba"), [Run("a", 1), Run("b", 1), Run("a", 1)])

    def test_decoding_undoes_encoding(self) -> None:
        for text in ("", "a", "aabbcc", "  x  ", "1122", "\n\n\t"):
            with self.subTest(text=text):
                self.assertEqual(decode(encode(text)), text)

    def test_decoding_nothing(self) -> None:
        self.assertEqual(decode([]), "")


if __name__ == "__main__":
    unittest.main()
