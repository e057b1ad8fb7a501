"""One run after the other, as a reader sees it who opens it: in words, as a picture, and its transcript.

All of it is made of the run's own lines, when it is asked for: thousands of runs are never in memory together.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bus.export_format import Line
from workers.events import said_in
from workers.explaining import svg
from workers.explaining.steps import story_of
from workers.explaining.why import explained
from workers.reporting.facts import Event, RunDetail
from workers.reporting.texts import clipped

__all__ = ["detail_of", "events_of"]

_TOLD = {"model": ("reply.text", "reply.tool_calls"), "tools": ("results",)}  # fields that stand at the head, in words
_MOST_EVENTS = 1_000  # of one transcript from its beginning, and as many from its end


def detail_of(batch: str, run: str, lines: Sequence[Line], *, name: str, said: str = "") -> RunDetail:
    """What its lines tell. `name` makes the picture's ids unique on a page; `said`: what its row says at its end."""
    story = story_of(batch, run, lines)
    return RunDetail(
        run=clipped(run),
        words=tuple(explained(story, said)),
        picture=svg.draw(story, styled=False, name=name),
        events=events_of(lines),
    )


def events_of(lines: Iterable[Line]) -> tuple[Event, ...]:
    """The transcript of the run's last conversation, which is the one that was sealed, if one was.

    Events of conversations that were given up are none of it. A run that was taken over from another batch has its
    transcript there, and none here. Of a very long one the middle is left out, as the numbers show.
    """
    chain, first, last = "", list[Line](), deque[Line](maxlen=_MOST_EVENTS)
    for line in lines:
        if (line.fence, line.op, line.verb) != ("transcript", "append", "commit"):
            continue
        if line.args["run"] != chain:  # the one before was given up
            chain = line.args["run"]
            first.clear()
            last.clear()
        (first if len(first) < _MOST_EVENTS else last).append(line)
    return tuple(_event(line.args) for line in (*first, *last))


def _event(args: Mapping[str, Any]) -> Event:
    kind, text = _read(args.get("payload"))
    return Event(args["seq"], args["gen"], kind, text)


def _read(payload: object) -> tuple[str, str]:
    """An event's kind, and what else it says: a text as such, several fields each under its name."""
    text = payload if isinstance(payload, str) else ""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return "", clipped(text)
    if not isinstance(said, dict):
        return "", clipped(text)
    kind = said.pop("kind", "")
    if not isinstance(kind, str):
        return "", clipped(text)
    told = list(said_in({"kind": kind, **said}))
    fields = {name: value for name, value in _flat(said) if value not in ("", None) and name not in _TOLD.get(kind, ())}
    if list(fields) == ["text"]:
        return clipped(kind), clipped(_shown(fields["text"]))
    rest = "\n".join(f"{name}: {_shown(value)}" for name, value in fields.items())
    return clipped(kind), clipped("\n\n".join(part for part in ("\n".join(told), rest) if part))


def _flat(said: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The fields; those of an object within it, such as a model's reply, each by itself."""
    for name, value in said.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{inner}", of) for inner, of in value.items())
        else:
            yield name, value


def _shown(value: Any) -> str:  # noqa: ANN401 - any JSON value
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
