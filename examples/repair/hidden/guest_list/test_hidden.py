"""Tests that judge a repair; the solver does not see them."""

import unittest

from guest_list import invite, invite_all


class InviteHiddenTest(unittest.TestCase):
    def test_the_same_guest_may_attend_two_events(self) -> None:
        first, second = invite("Linus"), invite("Linus")
        self.assertEqual(first, second)
        self.assertIsNot(first, second)

    def test_extending_one_list_leaves_the_next_alone(self) -> None:
        invite("Edsger", invite("Tony"))
        self.assertEqual(invite("Barbara"), ["Barbara"])

    def test_a_given_empty_list_is_used(self) -> None:
        guests: list[str] = []
        invite("Alan", guests)
        self.assertEqual(guests, ["Alan"])

    def test_invite_all_starts_afresh(self) -> None:
        invite_all(["Ada", "Grace"])
        self.assertEqual(invite_all(["Alan"]), ["Alan"])

    def test_no_names_give_an_empty_list(self) -> None:
        self.assertEqual(invite_all([]), [])

    def test_none_means_a_new_list(self) -> None:
        self.assertEqual(invite("Ada", None), ["Ada"])


if __name__ == "__main__":
    unittest.main()
