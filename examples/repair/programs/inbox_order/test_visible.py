"""Tests that come with the program."""

import unittest
from datetime import date

from inbox_order import Message, preview


class InboxOrderTest(unittest.TestCase):
    def test_the_newest_message_comes_first(self) -> None:
        inbox = [Message("old", date(2023, 1, 5)), Message("new", date(2023, 2, 1))]
        self.assertEqual(preview(inbox, 2), ["new", "old"])

    def test_pinned_messages_stay_at_the_top(self) -> None:
        inbox = [Message("plain", date(2023, 2, 1)), Message("pinned", date(2022, 1, 1), pinned=True)]
        self.assertEqual(preview(inbox, 1), ["pinned"])

    def test_an_empty_inbox(self) -> None:
        self.assertEqual(preview([], 5), [])


if __name__ == "__main__":
    unittest.main()
