"""Tests that come with the program."""

import unittest

from glossary_lookup import Glossary


class GlossaryTest(unittest.TestCase):
    def test_case_does_not_matter(self) -> None:
        glossary = Glossary()
        glossary.add("Bus", "carries many")
        self.assertEqual(glossary.find("bUS"), "carries many")

    def test_the_german_sharp_s_in_capitals(self) -> None:
        glossary = Glossary()
        glossary.add("Straße", "a street")
        self.assertEqual(glossary.find("STRASSE"), "a street")

    def test_an_unknown_term(self) -> None:
        self.assertIsNone(Glossary().find("tram"))

    def test_a_second_explanation_replaces_the_first(self) -> None:
        glossary = Glossary()
        glossary.add("tram", "one")
        glossary.add(" Tram ", "two")
        self.assertEqual((len(glossary), glossary.find("tram")), (1, "two"))


if __name__ == "__main__":
    unittest.main()
