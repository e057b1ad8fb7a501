"""One entry of an imported history, as it is kept in the stream.

A script's own entry holds the envelope as it came and what the envelope does not say; the export puts the two together.
From the export there is no way back to the bytes that a script wrote, and none is needed: the entry keeps the lines'
own values, and they are exported again as they stand. Only the payload of an event that was committed is left out. It
stands in the transcript, as ever.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bus.recorded import Part
from bus.replay.telling import Told

__all__ = ["FIELD", "Exported", "is_event", "pack", "unpack"]

FIELD = b"i"
"""The field that an entry of an imported history has, and one that a script wrote has not."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The lines of one entry; their parts have all their arguments."""

    envelope: Mapping[str, Any]
    parts: tuple[Part, ...]


def is_event(told: Told) -> bool:
    """Whether the line put an event into a transcript, whose payload is kept there and not beside it.

    The export writes a payload behind the other arguments; in any other place it must stay where it is.
    """
    granted = (told.fence, told.op, told.verb) == ("transcript", "append", "commit")
    return granted and list(told.args)[-1:] == ["payload"] and isinstance(told.args["payload"], str)


def pack(lines: Sequence[Told]) -> bytes:
    """The lines of one entry, in order."""
    parts = [[one.fence, one.op, one.verb, one.reason, _kept(one), one.answer] for one in lines]
    text = json.dumps([lines[0].envelope, parts], ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def unpack(packed: bytes) -> Exported:
    """What `pack` packed."""
    envelope, parts = json.loads(packed.decode("utf-8", "surrogatepass"))
    return Exported(envelope, tuple(Part(*part) for part in parts))


def _kept(told: Told) -> Mapping[str, Any]:
    if not is_event(told):
        return told.args
    return {name: value for name, value in told.args.items() if name != "payload"}
