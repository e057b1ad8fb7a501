"""`docs/reference.md` and `docs/suite.md`, made of the code: what was written by hand would be out of date by now.

`python -m workers.docs` (or `make docs`) writes both; a test compares them with what they would be now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from workers.docs.commands import reference
from workers.docs.suites import suite_fields

__all__ = ["pages"]

_MADE: Final = "<!-- Made by `make docs` from {source}: change it there. -->\n\n"


def pages() -> Mapping[str, str]:
    """Each page by its name in `docs/`, as the code has it now."""
    return {
        "reference.md": _MADE.format(source="workers/cli") + reference(),
        "suite.md": _MADE.format(source="the tables of a suite") + suite_fields(),
    }
