"""Commands of one kind that are asked for at the same moment travel as one call of their script.

A worker that drives sixty-four runs is woken by one read with sixty-four answers, and then asks for sixty-four of the
next step. Each is a command of its own, with its own identity, answer and record (`lua/include/many.lua`); what they
share is the call. Nothing waits for company: what the event loop's present round asks for leaves in its next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from bus.calling import Command
from bus.errors import ReplyError
from bus.link import Link
from bus.scripts import Script
from bus.types import Decision

__all__ = ["Together"]

AT_ONCE: Final = 32
"""Commands in one call, at most: all other clients wait meanwhile, for some two milliseconds of no-op runs.

Twice as many would save the server 2% of its instructions, and keep the others waiting twice as long."""

MOST_WORDS: Final = 256
"""Arguments in one call, at most, unless one command has more: a large fan-out is work enough for a call."""


Arguments = Callable[[str], tuple[str | bytes, ...]]
"""A command's arguments, made for the server that it is sent to, by that one's run id."""


class _Asked(NamedTuple):
    keys: tuple[str, ...]
    argv: Arguments
    words: int
    answer: asyncio.Future[Decision]


def _pieces(crowd: Sequence[_Asked]) -> Iterator[list[_Asked]]:
    """What goes into one call each."""
    piece: list[_Asked] = []
    words = 0
    for one in crowd:
        if piece and (len(piece) == AT_ONCE or words + one.words > MOST_WORDS):
            yield piece
            piece, words = [], 0
        piece.append(one)
        words += one.words
    if piece:
        yield piece


class Together:
    """See the module's text. One for each connection."""

    def __init__(self, link: Link) -> None:
        """`link`: sends the calls, and again what has no answer."""
        self._link = link
        self._asked: dict[tuple[str, tuple[str, ...]], list[_Asked]] = {}
        self._calls: set[asyncio.Task[None]] = set()

    def ask(
        self,
        script: Script,
        shared: tuple[str, ...],
        own: tuple[str, ...],
        argv: Arguments,
        words: int = 1,
    ) -> asyncio.Future[Decision]:
        """Queue one command. The future's exception: as `Link.run_together`, for this command alone or for its call.

        `shared` and `own`: its keys, in the order of `script.shared_keys` and `script.own_keys`. `words`: how many
        arguments it has.
        """
        loop = asyncio.get_running_loop()
        asked = _Asked(own, argv, words, loop.create_future())
        crowd = self._asked.setdefault((script.name, shared), [])
        if not crowd:
            loop.call_soon(self._leave, script, shared)
        crowd.append(asked)
        return asked.answer

    def _leave(self, script: Script, shared: tuple[str, ...]) -> None:
        asked = self._asked.pop((script.name, shared), [])  # whoever closed has emptied it
        crowd = [one for one in asked if not one.answer.done()]  # some were cancelled
        for piece in _pieces(crowd):
            task = asyncio.create_task(self._call(script, shared, piece))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)

    async def _call(self, script: Script, shared: tuple[str, ...], crowd: list[_Asked]) -> None:
        sent: list[_Asked] = []

        def commands(server: str) -> list[Command]:
            """Each time that they are sent: of those that somebody still waits for."""
            sent.clear()
            made = []
            for one in crowd:
                if one.answer.done():
                    continue
                try:
                    made.append(Command(one.keys, one.argv(server)))
                except Exception as error:  # what cannot be put into words is that one's own: its text is too long
                    one.answer.set_exception(error)
                else:
                    sent.append(one)
            return made

        try:
            answers: list[Decision | ReplyError] = await self._link.run_together(script, shared, commands)
        except asyncio.CancelledError:
            for one in crowd:
                one.answer.cancel()
            raise
        except Exception as error:  # an outcome like any other: whoever asked raises it
            for one in crowd:
                if not one.answer.done():
                    one.answer.set_exception(error)
            return
        for one, answer in zip(sent, answers, strict=True):
            if one.answer.done():
                continue
            if isinstance(answer, Exception):
                one.answer.set_exception(answer)
            else:
                one.answer.set_result(answer)

    def close(self) -> None:
        """Ask for nothing any more; whatever is in flight has an unknown outcome."""
        for crowd in self._asked.values():
            for one in crowd:
                one.answer.cancel()
            crowd.clear()
        for task in self._calls:
            task.cancel()
