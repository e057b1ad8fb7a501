import unittest

from sensor_summary import Summary, spread, summarise


class HiddenSensorSummaryTest(unittest.TestCase):
    def test_a_reading_of_zero_is_valid(self) -> None:
        self.assertEqual(summarise([0.0, None]), Summary(1, 0.0, 0.0, 0.0))

    def test_readings_from_a_generator(self) -> None:
        self.assertEqual(summarise(float(n) for n in range(5)), Summary(5, 0.0, 4.0, 2.0))

    def test_the_mean_is_rounded(self) -> None:
        self.assertEqual(summarise([1.0, 1.0, 2.0]), Summary(3, 1.0, 2.0, 1.33))

    def test_readings_below_zero(self) -> None:
        self.assertEqual(spread([-3.0, None, -1.0]), 2.0)

    def test_no_spread_without_readings(self) -> None:
        self.assertEqual(spread([]), 0.0)


if __name__ == "__main__":
    unittest.main()
