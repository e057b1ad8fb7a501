"""A file that was named where only a batch of a server can be: what it is, and which command reads it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from bus.errors import InputError
from bus.replay.lines import FORMAT as HISTORY
from workers.gating.snapshot_file import FORMAT as SNAPSHOT
from workers.histories.history_files import files_of, reading

__all__ = ["what_is_in"]

_BEGINNING: Final = 4_096
"""Bytes that are looked at: both kinds say at once what they are, and of which batch."""
_READERS: Final = {
    HISTORY: (
        "the history of batch {batch!r}, and this command asks a server (evalbus show, gate, report, why, explain and "
        "replay read the file; evalbus import puts it on a server)"
    ),
    SNAPSHOT: "a snapshot of batch {batch!r}, and this command asks a server (evalbus gate reads the file)",
}


def what_is_in(named: str) -> str | None:
    """One line; None where there is no such file, or one of another kind."""
    try:
        file = files_of(named)[0]
        if not Path(file).is_file():  # nor a pipe: it would be waited for
            return None
        with reading(file) as lines:
            begins = lines.read(_BEGINNING).decode("utf-8", "replace")
    except (InputError, OSError, ValueError):
        return None
    kind = re.match(r'\s*\{\s*"format":\s*"([a-z-]+)"', begins)
    batch = re.search(r'"batch":\s*"([A-Za-z0-9._-]+)"', begins)
    if kind is None or batch is None or kind[1] not in _READERS:
        return None
    return f"{named}: is {_READERS[kind[1]].format(batch=batch[1])}"
