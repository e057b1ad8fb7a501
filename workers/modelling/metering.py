"""What a model call costs, as it is seen from here: counted while the answer arrives, and guessed before it is asked.

A stream's pieces are counted, one token each at least, until the endpoint says how many there were. Its own figure is
cumulative and is never added up; what was counted before it is part of it.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from bus.port import Chunk
from workers.endpoints import Piece, Usage

__all__ = ["Expectation", "Meter"]

_GROUP = 16  # pieces that are billed together; an eighth of the answer when that is more
_INTERVAL = 0.5  # seconds after which fewer are billed, too
_MOST_CHUNKS = 150  # of one attempt; the call that binds an answer names each of them once more, and takes 200
_SAMPLE = 200  # calls that an expectation is formed of
_QUANTILE = 0.95
_FIRST_BYTES_A_TOKEN = 2.0  # until a prompt's real size is known: no text that people write has fewer
_MARGIN = 1.25


@dataclass(slots=True)
class Meter:
    """One attempt's tokens, cut into numbered chunks."""

    began: float
    """The clock when the request left, in seconds."""
    total: int = 0
    chunks: list[Chunk] = field(default_factory=list)
    """All that were cut, in order; the first `flushed` of them were billed while the answer came."""
    flushed: int = 0
    guessed: int = 0
    """Of the total, what was neither seen nor told; all of it is in the last chunk."""
    _billed: int = 0
    _waiting: int = 0
    _cut: float | None = None
    _over: bool = False

    @property
    def last_seq(self) -> int:
        """The last chunk's number."""
        return len(self.chunks)

    @property
    def unflushed(self) -> list[Chunk]:
        """Chunks that were cut and not billed yet."""
        return self.chunks[self.flushed :]

    def take(self, piece: Piece) -> None:
        """Count a piece."""
        self.total += piece.tokens
        self._waiting += 1
        if piece.usage is not None and not piece.usage.estimated:
            self.total = max(self.total, piece.usage.total)

    def is_due(self, now: float) -> bool:
        """Whether enough has come to be billed before the rest of the answer does."""
        since = self.began if self._cut is None else self._cut
        enough = self._waiting >= max(_GROUP, self.total // 8) or now - since >= _INTERVAL
        return self.total > self._billed and enough and len(self.chunks) < _MOST_CHUNKS

    def cut(self, now: float) -> None:
        """Make a chunk of what has come since the last one, if anything has."""
        self._cut, self._waiting = now, 0
        if self.total > self._billed:
            # Paid for, and not durable: the text is nowhere but here until the answer is bound.
            self.chunks.append(Chunk(len(self.chunks) + 1, self.total - self._billed, durable=False))
            self._billed = self.total

    def finish(self, usage: Usage | None, now: float) -> None:
        """The stream is over: what the endpoint says it cost is what it cost, when that is more than was seen."""
        if usage is not None:
            if usage.estimated:
                self.guessed += max(usage.total - self.total, 0)
            self.total = max(self.total, usage.total)
        self._over = True
        self.cut(now)

    def break_off(self, usage: Usage | None, prompt: int, now: float) -> None:
        """The stream broke: bill what was seen.

        Without a figure of the endpoint's the prompt is `prompt` tokens, as far as anybody here can tell.
        """
        if self._over:  # it was over before: what broke is what was to be done with it
            return
        known = usage is not None and not usage.estimated
        if not known:
            self.total, self.guessed = self.total + prompt, prompt
        self.finish(usage if known else None, now)

    def settle(self, figure: int, now: float) -> None:
        """The stream is over, and this is the endpoint's own figure for it: the rest of it is billed."""
        self.total, self._over = max(self._billed, figure), True
        self.cut(now)

    def durable(self) -> list[Chunk]:
        """Every chunk as the answer that is bound makes it: where a successor finds it."""
        return [Chunk(chunk.seq, chunk.tokens) for chunk in self.chunks] or [Chunk(1, 0)]


class Expectation:
    """What a call is thought to cost, from what the last ones of this process did."""

    def __init__(self, first: int) -> None:
        """`first`: tokens of a call, until calls were made."""
        self._first = first
        self._totals: deque[int] = deque(maxlen=_SAMPLE)
        self._tokens_a_byte: deque[float] = deque(maxlen=_SAMPLE)

    def learn(self, total: int, prompt_tokens: int | None, body_bytes: int) -> None:
        """A call's cost; `prompt_tokens` where the endpoint told them."""
        self._totals.append(total)
        if prompt_tokens is not None and body_bytes:
            self._tokens_a_byte.append(prompt_tokens / body_bytes)

    def of_call(self, body_bytes: int, max_tokens: int | None) -> int:
        """Tokens to set aside for a call, at least 1.

        With a limit to its answer it is a bound and no expectation, or a budget could be passed by calls that each
        fitted into it: the whole answer, and the prompt at more tokens a byte than any was seen to have.
        """
        if max_tokens is not None:
            rate = max(self._tokens_a_byte, default=1 / _FIRST_BYTES_A_TOKEN / _MARGIN) * _MARGIN
            return max_tokens + math.ceil(rate * body_bytes)
        if not self._totals:
            return self._first
        ranked = sorted(self._totals)
        return max(1, ranked[min(len(ranked) - 1, math.ceil(_QUANTILE * len(ranked)) - 1)])
