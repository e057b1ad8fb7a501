import unittest

from version_compare import compare, newest


class VersionCompareTest(unittest.TestCase):
    def test_the_second_number_decides(self) -> None:
        self.assertEqual(compare("1.2", "1.3"), -1)

    def test_numbers_of_two_digits(self) -> None:
        self.assertEqual(compare("1.10", "1.9"), 1)

    def test_a_candidate_is_older_than_its_release(self) -> None:
        self.assertEqual(compare("2.0-rc1", "2.0"), -1)

    def test_the_newest(self) -> None:
        self.assertEqual(newest(["0.9", "1.1", "1.0"]), "1.1")


if __name__ == "__main__":
    unittest.main()
