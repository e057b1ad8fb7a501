"""Answers, in tokens. The lab's rule for tokens: a token is a word, that is, text without white space in it.

The white space before a word belongs to its token, so the tokens of a text, put together, are the text. A tool
call is one token for its name and one for each word of its arguments. The same rule counts prompts and answers;
usage, bills and stream deltas follow from it: one token a delta.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from itertools import pairwise
from typing import Final

__all__ = ["Answer", "Call", "Delta", "Finish", "answer", "tokens"]

_WORD: Final = re.compile(r"\S+")
_WORDS: Final = (
    *("the", "a", "one", "two", "three", "run", "lease", "fence", "ledger", "case", "step", "answer", "token"),
    *("stream", "worker", "judge", "plan", "tree", "is", "was", "holds", "ends", "begins", "after", "before"),
    *("with", "without", "late", "early", "whole", "again", "never", "always"),
)
_FEWEST, _MOST = 3, 9
"""Words of an answer that nobody has scripted."""


def tokens(text: str) -> list[str]:
    """Its words, each with the white space before it, the last also with that behind it; none if it is blank."""
    ends = [match.end() for match in _WORD.finditer(text)]
    if ends:
        ends[-1] = len(text)
    return [text[start:end] for start, end in pairwise((0, *ends))]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. The arguments are JSON text, or what stands in for it."""

    name: str
    arguments: str
    id: str = ""


class Finish(StrEnum):
    """Why an answer ends."""

    STOP = "stop"
    LENGTH = "length"
    CALLS = "tool_calls"


@dataclass(frozen=True, slots=True)
class Delta:
    """One token."""

    text: str
    call: int | None = None
    """The index of the call that it belongs to; None: it is of the answer's text."""
    opens: bool = False
    """It is the call's name."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says."""

    text: str
    calls: tuple[Call, ...]
    deltas: tuple[Delta, ...]
    finish: Finish

    def limited(self, most: int | None) -> Answer:
        """No more tokens than asked for."""
        if most is None or len(self.deltas) <= most:
            return self
        return replace(_of_deltas(self.calls, self.deltas[:most]), finish=Finish.LENGTH)

    def blank(self) -> Answer:
        """Without content."""
        return Answer("", (), (), Finish.STOP)

    def with_a_cut_call(self, tools: tuple[str, ...], name: str) -> Answer | None:
        """The last call's arguments break off; None: there is no call, and no tool to call.

        `name` makes the ids, as in `answer`.
        """
        calls = self.calls
        if not calls:
            if not tools:
                return None
            calls = (Call(tools[0], '{"query": "what was never said to its end"}', _call_id(name, 0)),)
        last = calls[-1]
        return _of_calls((*calls[:-1], replace(last, arguments=last.arguments[: len(last.arguments) // 2])))


def answer(seed: int, prompt: str, scripted: str | tuple[Call, ...] | None, length: int | None) -> Answer:
    """The answer to a prompt: what is scripted, else a few words that depend on the prompt and the seed only."""
    name = sha256(f"{seed}/{prompt}".encode("utf-8", "surrogatepass")).hexdigest()
    if isinstance(scripted, tuple):
        return _of_calls(tuple(replace(call, id=_call_id(name, n)) for n, call in enumerate(scripted)))
    if scripted is None:
        chance = random.Random(int(name, 16))  # noqa: S311 - it must be repeatable
        count = chance.randint(_FEWEST, _MOST) if length is None else length
        scripted = " ".join(chance.choice(_WORDS) for _ in range(count))
    return Answer(scripted, (), tuple(Delta(token) for token in tokens(scripted)), Finish.STOP)


def _call_id(name: str, index: int) -> str:
    return f"call_{name[:20]}{index}"


def _of_calls(calls: tuple[Call, ...]) -> Answer:
    deltas: list[Delta] = []
    for index, call in enumerate(calls):
        deltas.append(Delta(call.name, index, opens=True))
        deltas += [Delta(token, index) for token in tokens(call.arguments)]
    return Answer("", calls, tuple(deltas), Finish.CALLS)


def _of_deltas(calls: tuple[Call, ...], deltas: tuple[Delta, ...]) -> Answer:
    text = "".join(delta.text for delta in deltas if delta.call is None)
    said = []
    for index, call in enumerate(calls):
        of_call = [delta for delta in deltas if delta.call == index]
        if of_call:
            said.append(replace(call, arguments="".join(delta.text for delta in of_call if not delta.opens)))
    return Answer(text, tuple(said), deltas, Finish.STOP)
