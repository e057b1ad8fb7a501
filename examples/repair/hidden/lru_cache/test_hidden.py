import unittest

from lru_cache import RecentCache


class HiddenLruCacheTest(unittest.TestCase):
    def test_reading_moves_a_key_to_the_end(self) -> None:
        cache = RecentCache(3)
        for number, key in enumerate("abc"):
            cache.put(key, number)
        cache.get("b")
        cache.get("a")
        self.assertEqual(cache.keys(), ["c", "b", "a"])

    def test_a_failed_read_changes_nothing(self) -> None:
        cache = RecentCache(2)
        cache.put("a", 1)
        cache.put("b", 2)
        cache.get("missing")
        self.assertEqual(cache.keys(), ["a", "b"])

    def test_writing_again_counts_as_use(self) -> None:
        cache = RecentCache(2)
        cache.put("a", 1)
        cache.put("b", 2)
        cache.put("a", 3)
        cache.put("c", 4)
        self.assertEqual(cache.keys(), ["a", "c"])
        self.assertEqual(cache.get("a"), 3)

    def test_a_cache_of_one(self) -> None:
        cache = RecentCache(1)
        cache.put("a", 1)
        cache.put("b", 2)
        self.assertEqual(cache.keys(), ["b"])

    def test_a_value_of_zero_is_found(self) -> None:
        cache = RecentCache(1)
        cache.put("a", 0)
        self.assertEqual(cache.get("a"), 0)

    def test_no_capacity_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            RecentCache(0)


if __name__ == "__main__":
    unittest.main()
