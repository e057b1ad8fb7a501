import unittest

from version_compare import compare, newest


class HiddenVersionCompareTest(unittest.TestCase):
    def test_zeros_at_the_end_do_not_count(self) -> None:
        self.assertEqual(compare("1", "1.0.0"), 0)

    def test_the_first_number_decides(self) -> None:
        self.assertEqual(compare("10.0", "9.9.9"), 1)

    def test_leading_zeros_do_not_count(self) -> None:
        self.assertEqual(compare("1.02", "1.2"), 0)

    def test_suffixes_compare_as_text(self) -> None:
        self.assertEqual(compare("3.1-beta", "3.1-alpha"), 1)

    def test_a_longer_version_is_newer(self) -> None:
        self.assertEqual(compare("1.2.1", "1.2"), 1)

    def test_the_newest_of_many(self) -> None:
        self.assertEqual(newest(["2.2", "2.11-rc1", "2.11", "2.3"]), "2.11")

    def test_the_first_of_equals(self) -> None:
        self.assertEqual(newest(["1.0", "1"]), "1.0")

    def test_no_versions(self) -> None:
        with self.assertRaises(ValueError):
            newest([])


if __name__ == "__main__":
    unittest.main()
