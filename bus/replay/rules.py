"""Which rules a history is replayed under: those of the release that recorded it.

Two numbers stand in a history. The `version` in its first line is the file's: how lines are written (`lines.py`). The
`schema` in every envelope is the decisions': which fields a script takes, and what it answers to them. A release that
decides something in another way raises the schema, and the rules before stay here under their number, because a number
that was proved once has to stay proved.

    RULES    schema → the player that takes the decisions of that schema again

A history is of one schema, from the entry that declares the batch on. Where another one stands, nobody knows which
rules its decisions followed, so such a history is refused; it is not called untrue. Only what was refused *for* its
schema may carry any: that refusal is a decision of the batch's own rules.
"""

from __future__ import annotations

from collections.abc import Mapping

from bus.errors import InputError
from bus.replay.player import Player
from bus.replay.telling import DiffersError, Told

__all__ = ["RULES", "Rules"]

RULES: Mapping[int, type[Player]] = {1: Player}


class Rules:
    """The schema of one history, found in its first entry; each of the others must be of it too."""

    def __init__(self, source: str) -> None:
        """`source`: how messages name the file."""
        self.source = source
        self._schema: int | None = None

    def check(self, told: Told) -> None:
        """Raises InputError for an entry that this release has no rules for, DiffersError for one that names none."""
        schema = told.envelope.get("schema")
        if schema == self._schema and type(schema) is int:
            return
        if told.reason == "schema" and told.refused:
            return
        if type(schema) is not int:
            raise DiffersError(self.source, told.line, f"{told.name}: its envelope does not name its schema")
        if schema not in RULES:
            known = " and ".join(str(number) for number in sorted(RULES))
            raise self._refused(told, f"was written under schema {schema}; this release knows {known}")
        if self._schema is not None:
            raise self._refused(told, f"was written under schema {schema}, the entries before it under {self._schema}")
        self._schema = schema

    def player(self) -> type[Player]:
        """Who takes the decisions again. To be asked when an entry has been checked."""
        assert self._schema is not None
        return RULES[self._schema]

    def _refused(self, told: Told, problem: str) -> InputError:
        remedy = "replay it with the release that wrote it"
        return InputError(f"entry {told.id} {problem}", file=self.source, line=told.line, remedy=remedy)
