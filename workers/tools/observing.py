"""What an intent's row says, and what that means to the solver."""

from __future__ import annotations

import json
from typing import Final

from bus.port import IntentRow, IntentState
from workers.tools.tables import ToolTable
from workers.tools.text import json_of
from workers.tools.values import Answer, Observation

__all__ = ["UNDONE", "kept_text", "observed", "read_text"]

UNDONE: Final = "nobody could say what came of it in time, so it was undone"
"""What a solver is told of a call that was taken back."""

_NOTHING: Final = "\n"
"""Stands for no text, of which the outbox keeps none."""


def kept_text(text: str) -> str:
    """A result as the outbox keeps it."""
    return text or _NOTHING


def read_text(answer: Answer) -> str:
    """The result of a tool that only reads, with whether it succeeded: its row cannot tell."""
    return json_of({"ok": answer.ok, "text": answer.text})


def observed(name: str, table: ToolTable, row: IntentRow) -> Observation:
    """What came of an intent that has ended."""
    said = "" if row.observation in (None, _NOTHING) else str(row.observation)
    if row.state is IntentState.COMPENSATED:
        return Observation(name, False, UNDONE)
    if table.effects == "none":
        try:
            read = json.loads(said)
            return Observation(name, bool(read["ok"]), str(read["text"]))
        except (ValueError, KeyError, TypeError):  # given up before anybody read: the text says why
            return Observation(name, False, said)
    return Observation(name, row.state is IntentState.COMMITTED, said)
