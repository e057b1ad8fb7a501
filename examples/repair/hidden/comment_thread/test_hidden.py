"""Tests that judge a repair; the solver does not see them."""

import unittest

from comment_thread import Comment, count, depth


def chain(length: int) -> Comment:
    """Return a thread in which each comment has one reply, `length` levels deep."""
    comment = Comment("last")
    for _ in range(length - 1):
        comment = Comment("reader", [comment])
    return comment


class CommentThreadHiddenTest(unittest.TestCase):
    def test_the_depth_of_a_chain_is_its_length(self) -> None:
        self.assertEqual([depth(chain(length)) for length in range(1, 8)], list(range(1, 8)))

    def test_the_deepest_branch_counts(self) -> None:
        self.assertEqual(depth(Comment("ann", [Comment("bob"), chain(4), chain(2)])), 5)

    def test_many_replies_are_one_level(self) -> None:
        self.assertEqual(depth(Comment("ann", [Comment("bob") for _ in range(9)])), 2)

    def test_a_removed_comment_still_is_a_level(self) -> None:
        self.assertEqual(depth(Comment("ann", [Comment("bob", removed=True)])), 2)

    def test_replies_below_removed_comments_are_counted(self) -> None:
        self.assertEqual(count(Comment("ann", [Comment("bob", [chain(3)], removed=True)])), 4)


if __name__ == "__main__":
    unittest.main()
