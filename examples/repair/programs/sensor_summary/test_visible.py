import unittest

from sensor_summary import Summary, spread, summarise


class SensorSummaryTest(unittest.TestCase):
    def test_a_summary(self) -> None:
        self.assertEqual(summarise([2.0, None, 4.0]), Summary(2, 2.0, 4.0, 3.0))

    def test_no_valid_reading(self) -> None:
        self.assertIsNone(summarise([None, None]))

    def test_one_reading_has_no_spread(self) -> None:
        self.assertEqual(spread([None, 4.5]), 0.0)

    def test_the_spread(self) -> None:
        self.assertEqual(spread([7.5, 1.5]), 6.0)


if __name__ == "__main__":
    unittest.main()
