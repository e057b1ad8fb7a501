import unittest

from run_length import Run, decode, encode


class RunLengthTest(unittest.TestCase):
    def test_two_runs(self) -> None:
        self.assertEqual(encode("aaab"), [Run("a", 3), Run("b", 1)])

    def test_no_text_has_no_runs(self) -> None:
        self.assertEqual(encode(""), [])

    def test_decodes(self) -> None:
        self.assertEqual(decode([Run("x", 2), Run("y", 3)]), "xxyyy")


if __name__ == "__main__":
    unittest.main()
