"""The lines that are about one run → its story. Pure: the same lines make the same story."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from bus.export_format import Line
from workers.explaining import calling, life, scoring
from workers.explaining.entries import Entry, Picker, entries
from workers.explaining.story import BUS, Story, plain
from workers.explaining.telling import Telling

__all__ = ["story_of"]

_HANDLERS: Mapping[str, Callable[[Telling, Entry], None]] = {**life.HANDLERS, **calling.HANDLERS, **scoring.HANDLERS}


def story_of(batch: str, run: str, lines: Iterable[Line]) -> Story:
    """The run's story. Lines of other runs are passed over; the others must come in the order of the history."""
    told, picker = Telling(), Picker(run)
    for entry in entries(line for line in lines if picker.takes(line)):
        handle = _HANDLERS.get(_command(told, entry), _other)
        handle(told, entry)
    return Story(batch, run, tuple(told.steps), told.facts)


def _command(told: Telling, entry: Entry) -> str:
    """A run that ends after its seal ends in a scorer's hands."""
    ends = entry.command in ("claim", "hole") and entry.part("histogram.abandon") is not None
    return f"score_{entry.command}" if ends and told.facts.seal is not None else entry.command


def _other(told: Telling, entry: Entry) -> None:
    """A command that has no picture of its own: a fence's operation by itself, or one of a later release."""
    text = plain(entry.command.replace("_", " "), 60)
    if not told.ask(entry, told.actor(entry), text):
        told.say(entry, told.actor(entry), BUS, text)
