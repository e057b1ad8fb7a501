import unittest

from build_order import CycleError, build_order


class HiddenBuildOrderTest(unittest.TestCase):
    def test_a_chain(self) -> None:
        self.assertEqual(build_order({"c": ["b"], "b": ["a"], "a": []}), ["a", "b", "c"])

    def test_two_ways_to_one_target(self) -> None:
        needs = {"site": ["css", "html"], "css": ["fonts"], "html": ["fonts"], "fonts": []}
        self.assertEqual(build_order(needs), ["fonts", "css", "html", "site"])

    def test_a_target_that_is_only_needed(self) -> None:
        self.assertEqual(build_order({"app": ["libc"]}), ["libc", "app"])

    def test_each_target_comes_once(self) -> None:
        order = build_order({"x": ["z"], "y": ["z", "x"], "z": []})
        self.assertEqual(sorted(order), ["x", "y", "z"])

    def test_a_target_that_needs_itself(self) -> None:
        with self.assertRaises(CycleError):
            build_order({"a": ["a"]})

    def test_a_long_cycle(self) -> None:
        with self.assertRaises(CycleError):
            build_order({"a": ["b"], "b": ["c"], "c": ["d"], "d": ["b"]})

    def test_nothing_to_build(self) -> None:
        self.assertEqual(build_order({}), [])


if __name__ == "__main__":
    unittest.main()
