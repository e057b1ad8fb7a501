"""A true history with every fence, to be edited by somebody who knows the format: it is counted and chained anew."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import structlog

from bus.checker import Books, Checked
from bus.types import Plane
from tests.batches import Batch
from tests.histories import checked, parsed, rechained, whole_history
from tests.limits import FIRST_BUDGET
from tests.servers import RealServer
from workers.tools.keys import wire_key

Line = dict[str, Any]

BOOK, FAILED, UNDONE = "c0#1~0.3.0", "c0#1~0.3.1", "c1#1~0.1.0"
"""The intents of the history: one that committed, one whose tool refused, one that was undone."""


@dataclass(slots=True)
class History:
    """A history that can be edited."""

    header: Line
    lines: list[Line]
    footer: Line
    effects: dict[str, int] = field(default_factory=dict)
    """The endpoint's books, by intent."""
    undone: dict[str, int] = field(default_factory=dict)
    tokens: int = 30

    @classmethod
    def of(cls, lines: Sequence[bytes]) -> History:
        """What an export says, with the books of an endpoint that agrees."""
        header, *middle, footer = [parsed(line) for line in lines]
        return cls(header, middle, footer, {BOOK: 1, UNDONE: 1}, {UNDONE: 1})

    def index(self, name: str, nth: int = 0, verb: str = "commit") -> int:
        """Where the n-th such decision stands; `name`: `outbox.put`."""
        fits = [
            at for at, one in enumerate(self.lines) if f"{one['fence']}.{one['op']}" == name and one["verb"] == verb
        ]
        return fits[nth]

    def line(self, name: str, nth: int = 0) -> Line:
        """That decision."""
        return self.lines[self.index(name, nth)]

    def step(self, name: str, nth: int = 0) -> list[Line]:
        """All parts of its entry."""
        entry = self.line(name, nth)["id"].partition("/")[0]
        return [one for one in self.lines if one["id"].partition("/")[0] == entry]

    def add(self, parts: Sequence[Line], behind: int) -> None:
        """Another entry, behind the one that the line at this index is of."""
        entry = self.lines[behind]["id"].partition("/")[0]
        while behind + 1 < len(self.lines) and self.lines[behind + 1]["id"].startswith(f"{entry}/"):
            behind += 1
        ms = entry.partition("-")[0]
        made = [copy.deepcopy(one) | {"id": f"{ms}-added{len(self.lines)}/1"} for one in parts]
        self.lines[behind + 1 : behind + 1] = made

    def export(self) -> list[bytes]:
        """The file, its entries counted and chained anew."""
        entries: list[str] = []
        lines = []
        part = 0
        for one in self.lines:
            entry = one["id"].partition("/")[0]
            part = part + 1 if entries[-1:] == [entry] else 1
            if part == 1:
                entries.append(entry)
            numbered = one | {"id": f"{entry.partition('-')[0]}-{len(entries)}/{part}"}
            lines.append(json.dumps(numbered, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
        spelt = [json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in (self.header, self.footer)]
        return rechained([spelt[0], *lines, spelt[1]])

    def books(self) -> Books:
        """What the endpoint counted, by its own keys."""
        incarnation = self.line("run.create")["envelope"]["incarnation"]

        def keyed(counts: dict[str, int]) -> dict[str, int]:
            return {wire_key(Plane.LIVE, incarnation, intent): times for intent, times in counts.items()}

        return Books(tokens=self.tokens, effects=keyed(self.effects), undone=keyed(self.undone))

    def checked(self) -> Checked:
        """What the checker finds."""
        return checked(self.export(), self.books())


@pytest.fixture(scope="module")
def true(valkey: RealServer) -> list[bytes]:
    """A history with every fence, whole and closed."""

    async def play() -> list[bytes]:
        batch = await Batch.open(valkey.target.address(), limits=FIRST_BUDGET)
        lines = await whole_history(batch)
        await batch.aclose()
        return lines

    with valkey.client() as client:
        client.flushall()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    lines = asyncio.run(play())
    structlog.reset_defaults()
    return lines
