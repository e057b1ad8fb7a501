import unittest

from build_order import CycleError, build_order


class BuildOrderTest(unittest.TestCase):
    def test_independent_targets_keep_their_order(self) -> None:
        self.assertEqual(build_order({"b": [], "a": []}), ["b", "a"])

    def test_needs_come_first(self) -> None:
        self.assertEqual(build_order({"app": ["lib"], "lib": []}), ["lib", "app"])

    def test_a_cycle_is_refused(self) -> None:
        with self.assertRaises(CycleError):
            build_order({"a": ["b"], "b": ["a"]})


if __name__ == "__main__":
    unittest.main()
