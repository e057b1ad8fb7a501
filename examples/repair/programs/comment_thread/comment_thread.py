"""Threads of comments below an article."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Comment:
    """A comment with its replies; one that was `removed` is not counted, its replies are."""

    author: str
    replies: list[Comment] = field(default_factory=list)
    removed: bool = False


def depth(comment: Comment) -> int:
    """Return how many levels the thread has; a comment without replies has one."""
    if not comment.replies:
        return 0
    return 1 + max(depth(reply) for reply in comment.replies)


def count(comment: Comment) -> int:
    """Return how many comments of the thread can be read."""
    own = 0 if comment.removed else 1
    return own + sum(count(reply) for reply in comment.replies)
