"""Fence 1, accepted: every order of {stall, duplicate delivery, capacity reject, live prefix smuggled in}.

All four happen to one shadow run, so that each of them meets what those before it left: a live key in the hand of a
worker whose place was taken back, or whose row is written already. Beside it the live run of the same step is absent,
has written, or writes later; what is smuggled in is the key, the header, or both. 0 live keys are written by the shadow
run, what crossed is kept as it was presented, and the shadow run's own row is written, once.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from bus.acceptance.rule import Batch, Rule, Stage, Tally

__all__ = ["RULES"]

EVENTS = ("stall", "duplicate delivery", "capacity reject", "live prefix smuggled in")
SHADOW, LIVE, NEIGHBOUR = "shadow:n3:pay", "live:n3:pay", "shadow:n4:pay"
SMUGGLED: Mapping[str, Mapping[str, str]] = {
    "key": {"key": LIVE, "plane": "shadow"},
    "header": {"key": SHADOW, "plane": "live"},
    "key and header": {"key": LIVE, "plane": "live"},
}
TWINS = ("no live run", "a live run before", "a live run after")

NO_LIVE, KEPT, WRITTEN = (
    "no live key is written or undone by a shadow run",
    "what crossed is kept with its raw key",
    "the shadow run's own row is written, once",
)


@dataclass(slots=True)
class _ShadowRun:
    """One job of the shadow plane, and what its workers believe."""

    batch: Batch
    smuggled: Mapping[str, str]
    admission: str | None = None
    """The latest that a worker of it was told; it may be dead by now."""
    written: int = 0
    crossed: list[str] = field(default_factory=list)

    async def meet(self, event: str) -> None:
        """One of the four happens."""
        match event:
            case "stall":
                await self._stalls()
            case "duplicate delivery":
                await self._is_delivered_twice()
            case "capacity reject":
                await self._finds_no_place()
            case _:
                await self._admit()
                await self._smuggle("write", body="shadow")

    async def finish(self) -> None:
        """A worker to whom nothing happens."""
        await self._admit()
        await self._write()
        await self.batch.send("release", admission=self.admission)

    async def _admit(self) -> None:
        """A place of its own, or the name of the admission that has the key in flight."""
        answer = await self.batch.send("admit", key=SHADOW, plane="shadow")
        self.admission = answer.get("admission") or self.admission

    async def _write(self) -> None:
        answer = await self.batch.send("write", admission=self.admission, key=SHADOW, plane="shadow", body="shadow")
        self.written += answer["verb"] == "commit"

    async def _smuggle(self, op: str, **more: object) -> None:
        """A live key or header, in the place of its own."""
        self.crossed.append(self.smuggled["key"])
        answer = await self.batch.send(op, admission=self.admission, **self.smuggled, **more)
        self.written += op == "write" and self.smuggled["key"] == SHADOW and answer["verb"] == "commit"

    async def _stalls(self) -> None:
        """Its place is taken back, its timeout wants to undo what it wrote, and then it wakes up and writes."""
        await self._admit()
        await self.batch.send("release", admission=self.admission)
        await self._smuggle("undo")
        await self._write()

    async def _is_delivered_twice(self) -> None:
        """Two workers have the job."""
        for _ in range(2):
            await self._admit()
            await self._write()

    async def _finds_no_place(self) -> None:
        """Others fill the plane; who finds no place must wait, and not spill over to where there is room."""
        taken = await self.batch.send("admit", key=NEIGHBOUR, plane="shadow")
        await self._admit()
        await self.batch.send("admit", key=SHADOW, plane="live")
        for admission in filter(None, (taken.get("admission"), "nobody's")):
            answer = await self.batch.send("write", admission=admission, key=SHADOW, plane="shadow", body="spilt")
            self.written += answer["verb"] == "commit"
        if taken["verb"] == "commit":
            await self.batch.send("release", admission=taken["admission"])


async def _live_run(batch: Batch) -> None:
    admitted = await batch.send("admit", key=LIVE, plane="live")
    who = {"admission": admitted.get("admission") or "nobody's", "key": LIVE, "plane": "live"}
    await batch.send("write", **who, body="live")
    await batch.send("undo", **who)


async def _play(stage: Stage) -> Mapping[str, Tally]:
    tallies = {held: Tally("schedules") for held in (NO_LIVE, KEPT, WRITTEN)}
    cases = list(itertools.product(itertools.permutations(EVENTS), SMUGGLED, TWINS))

    async def one(case: tuple[tuple[str, ...], str, str]) -> None:
        order, smuggled, twin = case
        async with stage.batch({"capacity": 1}) as batch:
            if twin == "a live run before":
                await _live_run(batch)
            run = _ShadowRun(batch, SMUGGLED[smuggled])
            for event in order:
                await run.meet(event)
            await run.finish()
            if twin == "a live run after":
                await _live_run(batch)
            state = await batch.state()
        story = f"{', '.join(order)}; the {smuggled}; {twin}"
        own = [] if twin == "no live run" else [LIVE]
        honest = state["live_keys"] == own and all(state["rows"][key] == "live" for key in own)
        tallies[NO_LIVE].count(honest and state["undo"] == {"live": own, "shadow": []}, story)
        tallies[KEPT].count(state["crossed"] == {"live": [], "shadow": run.crossed}, story)
        tallies[WRITTEN].count(run.written == 1 and state["rows"].get(SHADOW) == "shadow", story)

    await stage.each(cases, one)
    return tallies


RULES = (Rule("a shadow run and a live key", _play, {"shared_key": NO_LIVE}),)
