import unittest

from query_string import first_value, parse_query


class HiddenQueryStringTest(unittest.TestCase):
    def test_an_escaped_plus_sign_in_a_name(self) -> None:
        self.assertEqual(parse_query("a%2Bb=1"), {"a+b": ["1"]})

    def test_a_telephone_number(self) -> None:
        self.assertEqual(first_value("?tel=%2B44+20", "tel"), "+44 20")

    def test_escaped_utf8(self) -> None:
        self.assertEqual(first_value("city=K%C3%B6ln", "city"), "K\u00f6ln")

    def test_an_equals_sign_in_a_value(self) -> None:
        self.assertEqual(parse_query("sum=1=1"), {"sum": ["1=1"]})

    def test_a_name_without_a_value(self) -> None:
        self.assertEqual(parse_query("debug&x="), {"debug": [""], "x": [""]})

    def test_empty_parts_are_skipped(self) -> None:
        self.assertEqual(parse_query("&&a=1&"), {"a": ["1"]})

    def test_the_default(self) -> None:
        self.assertEqual(first_value("a=1", "b", default="none"), "none")


if __name__ == "__main__":
    unittest.main()
