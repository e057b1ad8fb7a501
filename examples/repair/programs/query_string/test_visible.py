import unittest

from query_string import first_value, parse_query


class QueryStringTest(unittest.TestCase):
    def test_two_names(self) -> None:
        self.assertEqual(parse_query("?a=1&b=2"), {"a": ["1"], "b": ["2"]})

    def test_a_name_may_come_twice(self) -> None:
        self.assertEqual(parse_query("tag=x&tag=y"), {"tag": ["x", "y"]})

    def test_a_plus_sign_is_a_space(self) -> None:
        self.assertEqual(first_value("q=new+york", "q"), "new york")

    def test_an_escaped_plus_sign_stays(self) -> None:
        self.assertEqual(first_value("q=c%2B%2B+book", "q"), "c++ book")


if __name__ == "__main__":
    unittest.main()
