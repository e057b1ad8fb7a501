import unittest

from interval_merging import Slot, covered_minutes, merge


class HiddenIntervalMergingTest(unittest.TestCase):
    def test_touching_slots_become_one(self) -> None:
        self.assertEqual(merge([Slot(5, 10), Slot(10, 12)]), [Slot(5, 12)])

    def test_several_slots_inside_one(self) -> None:
        slots = [Slot(0, 100), Slot(10, 20), Slot(30, 40), Slot(90, 110)]
        self.assertEqual(merge(slots), [Slot(0, 110)])

    def test_minutes_are_not_counted_twice(self) -> None:
        self.assertEqual(covered_minutes([Slot(0, 50), Slot(5, 10), Slot(60, 70)]), 60)

    def test_same_start_different_end(self) -> None:
        self.assertEqual(merge([Slot(3, 9), Slot(3, 5)]), [Slot(3, 9)])

    def test_a_chain_of_overlaps(self) -> None:
        self.assertEqual(merge([Slot(8, 12), Slot(0, 5), Slot(4, 9)]), [Slot(0, 12)])

    def test_the_input_is_left_alone(self) -> None:
        slots = [Slot(9, 10), Slot(0, 9)]
        merge(slots)
        self.assertEqual(slots, [Slot(9, 10), Slot(0, 9)])

    def test_no_slots(self) -> None:
        self.assertEqual(merge([]), [])


if __name__ == "__main__":
    unittest.main()
