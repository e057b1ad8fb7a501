"""How an imported batch is told from one that lives here, and the one answer to whoever would do something to it."""

from __future__ import annotations

from bus.errors import InputError

__all__ = ["CODE", "IMPORTED_OPEN", "only_for_looking"]

CODE = "IMPORTED"
"""The first word of the error that every script answers for such a batch: see `lua/include/call.lua`."""

IMPORTED_OPEN = "imported"
"""In the registry: a batch that was open when its history was exported. Roles serve those that are `open` there."""


def only_for_looking(batch: str) -> InputError:
    """`batch`: its name."""
    return InputError(
        f"batch {batch!r} was imported, to look at: nothing can be run in it, nor changed",
        remedy="go on with it on the server that it was exported from, or choose another name",
    )
