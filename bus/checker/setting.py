"""What all predicates need to know of the batch, and how each of them is asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bus.checker.said import Said

__all__ = ["NO_LIMIT", "SLACK_MS", "Fence", "Setting"]

NO_LIMIT = 2**53 - 1
"""What is not declared."""
SLACK_MS = 5
"""A step reads the server's clock, and its entry is named by the same clock a little later."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The batch's declaration, as the first line states it."""

    plane: str
    policy: Mapping[str, Any]
    timed: bool
    """Bounds are compared with the entries' times. Not where the server's clock was made to jump."""

    def limit(self, name: str, otherwise: int = NO_LIMIT) -> int:
        """A number among the limits."""
        value: int = self.policy["limits"].get(name, otherwise)
        return value

    @property
    def inverses(self) -> Mapping[str, str]:
        """Tool → the tool that undoes it."""
        said: dict[str, str] = json.loads(self.policy["limits"].get("inverses", "{}"))
        return said

    @property
    def schemas(self) -> list[str]:
        """The kinds of verdicts that a tree may have."""
        said: list[str] = json.loads(self.policy["limits"].get("schemas", '["bin/1"]'))
        return said


class Fence:
    """One fence's predicates. A subclass fills `on` with what it makes of each operation that was applied.

    `also`: what it makes of an operation that was not applied, under `<op> <verb>`; most such change nothing.
    """

    def __init__(self) -> None:
        """Nothing known yet."""
        self.on: dict[str, Callable[[Said], None]] = {}
        self.also: dict[str, Callable[[Said], None]] = {}

    def take(self, said: Said) -> None:
        """The next decision of this fence."""
        found = self.on.get(said.op) if said.verb == "commit" else self.also.get(f"{said.op} {said.verb}")
        if found is not None:
            found(said)

    def void(self, floor: int) -> None:
        """The server was restarted: generations up to the floor count no more."""

    def end(self) -> None:
        """The batch has closed, and there are no more lines."""
