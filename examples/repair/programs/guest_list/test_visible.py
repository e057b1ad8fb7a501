"""Tests that come with the program."""

import unittest

from guest_list import invite, invite_all


class InviteTest(unittest.TestCase):
    def test_two_events_have_separate_lists(self) -> None:
        wedding = invite("Ada")
        concert = invite("Grace")
        self.assertEqual((wedding, concert), (["Ada"], ["Grace"]))

    def test_a_given_list_is_extended(self) -> None:
        guests = ["Ada"]
        self.assertIs(invite("Grace", guests), guests)
        self.assertEqual(guests, ["Ada", "Grace"])

    def test_nobody_is_invited_twice(self) -> None:
        self.assertEqual(invite_all(["Ada", " Ada ", "Grace"]), ["Ada", "Grace"])

    def test_a_guest_without_a_name_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            invite("  ", [])


if __name__ == "__main__":
    unittest.main()
