import unittest

from interval_merging import Slot, covered_minutes, merge


class IntervalMergingTest(unittest.TestCase):
    def test_overlapping_slots_become_one(self) -> None:
        self.assertEqual(merge([Slot(0, 30), Slot(20, 45)]), [Slot(0, 45)])

    def test_separate_slots_stay(self) -> None:
        self.assertEqual(merge([Slot(60, 90), Slot(0, 30)]), [Slot(0, 30), Slot(60, 90)])

    def test_a_slot_inside_another_adds_nothing(self) -> None:
        self.assertEqual(merge([Slot(0, 60), Slot(10, 20)]), [Slot(0, 60)])

    def test_minutes_of_touching_slots(self) -> None:
        self.assertEqual(covered_minutes([Slot(0, 15), Slot(15, 40)]), 40)


if __name__ == "__main__":
    unittest.main()
