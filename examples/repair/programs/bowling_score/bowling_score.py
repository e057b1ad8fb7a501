"""Scoring a game of ten-pin bowling."""

from __future__ import annotations

PINS = 10
FRAMES = 10


def frame_scores(rolls: list[int]) -> list[int]:
    """Return the score of each of the ten frames of a finished game.

    A strike (all pins with one ball) counts the next two balls as well, a spare (all pins with two balls)
    the next one. Extra balls of the tenth frame count only as such a bonus.
    """
    scores: list[int] = []
    ball = 0
    for _ in range(FRAMES):
        if rolls[ball] == PINS:
            scores.append(PINS + rolls[ball + 1])
            ball += 1
            continue
        pins = rolls[ball] + rolls[ball + 1]
        bonus = rolls[ball + 2] if pins == PINS else 0
        scores.append(pins + bonus)
        ball += 2
    return scores


def total_score(rolls: list[int]) -> int:
    """Return the score of a finished game, from 0 to 300."""
    return sum(frame_scores(rolls))
