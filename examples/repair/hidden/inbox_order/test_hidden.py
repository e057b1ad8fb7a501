"""Tests that judge a repair; the solver does not see them."""

import unittest
from datetime import date

from inbox_order import Message, preview, shown


class InboxOrderHiddenTest(unittest.TestCase):
    def test_pinned_messages_are_newest_first_too(self) -> None:
        inbox = [
            Message("a", date(2022, 5, 1), pinned=True),
            Message("b", date(2024, 5, 1)),
            Message("c", date(2023, 5, 1), pinned=True),
            Message("d", date(2021, 5, 1)),
        ]
        self.assertEqual(preview(inbox, 4), ["c", "a", "b", "d"])

    def test_messages_of_one_day_keep_their_order(self) -> None:
        inbox = [Message(subject, date(2023, 3, 3)) for subject in ("x", "y", "z")]
        self.assertEqual(preview(inbox, 3), ["x", "y", "z"])

    def test_a_preview_shows_the_newest_few(self) -> None:
        inbox = [Message(str(day), date(2023, 4, day)) for day in range(1, 11)]
        self.assertEqual(preview(inbox, 3), ["10", "9", "8"])

    def test_a_limit_beyond_the_inbox(self) -> None:
        self.assertEqual(preview([Message("only", date(2023, 4, 1))], 9), ["only"])

    def test_the_inbox_itself_is_not_reordered(self) -> None:
        inbox = [Message("old", date(2020, 1, 1)), Message("new", date(2021, 1, 1))]
        shown(inbox)
        self.assertEqual([message.subject for message in inbox], ["old", "new"])


if __name__ == "__main__":
    unittest.main()
