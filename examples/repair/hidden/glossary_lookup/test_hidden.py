"""Tests that judge a repair; the solver does not see them."""

import unittest

from glossary_lookup import Glossary


class GlossaryHiddenTest(unittest.TestCase):
    def test_the_final_sigma_of_greek(self) -> None:
        glossary = Glossary()
        glossary.add("λόγος", "word")
        self.assertEqual(glossary.find("ΛΌΓΟΣ"), "word")
        self.assertEqual(glossary.find("λόγοσ"), "word")

    def test_spellings_that_differ_in_case_are_one_term(self) -> None:
        glossary = Glossary()
        for spelling in ("Maß", "MASS", "mass", "maß"):
            glossary.add(spelling, spelling)
        self.assertEqual((len(glossary), glossary.find("Mass")), (1, "maß"))

    def test_accents_matter(self) -> None:
        glossary = Glossary()
        glossary.add("resume", "go on")
        self.assertIsNone(glossary.find("résumé"))

    def test_capital_accents_do_not(self) -> None:
        glossary = Glossary()
        glossary.add("résumé", "a life on one page")
        self.assertEqual(glossary.find("RÉSUMÉ"), "a life on one page")

    def test_two_glossaries_are_separate(self) -> None:
        first, second = Glossary(), Glossary()
        first.add("tram", "rails")
        self.assertEqual((len(first), len(second)), (1, 0))


if __name__ == "__main__":
    unittest.main()
