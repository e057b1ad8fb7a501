"""Tests that come with the program."""

import unittest

from comment_thread import Comment, count, depth


class CommentThreadTest(unittest.TestCase):
    def test_a_lone_comment_has_one_level(self) -> None:
        self.assertEqual(depth(Comment("ann")), 1)

    def test_a_reply_to_a_reply(self) -> None:
        self.assertEqual(depth(Comment("ann", [Comment("bob", [Comment("ann")])])), 3)

    def test_all_comments_are_counted(self) -> None:
        self.assertEqual(count(Comment("ann", [Comment("bob"), Comment("cy")])), 3)

    def test_a_removed_comment_is_not_counted(self) -> None:
        self.assertEqual(count(Comment("ann", [Comment("bob")], removed=True)), 1)


if __name__ == "__main__":
    unittest.main()
