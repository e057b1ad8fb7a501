import unittest

from lru_cache import RecentCache


class LruCacheTest(unittest.TestCase):
    def test_returns_what_was_put(self) -> None:
        cache = RecentCache(2)
        cache.put("a", 1)
        self.assertEqual(cache.get("a"), 1)

    def test_an_unknown_key_is_none(self) -> None:
        self.assertIsNone(RecentCache(1).get("a"))

    def test_reading_keeps_an_entry_alive(self) -> None:
        cache = RecentCache(2)
        cache.put("a", 1)
        cache.put("b", 2)
        cache.get("a")
        cache.put("c", 3)
        self.assertEqual(cache.get("a"), 1)
        self.assertIsNone(cache.get("b"))

    def test_the_capacity_holds(self) -> None:
        cache = RecentCache(2)
        for number, key in enumerate("abc"):
            cache.put(key, number)
        self.assertEqual(cache.keys(), ["b", "c"])


if __name__ == "__main__":
    unittest.main()
