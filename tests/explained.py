"""Histories for pictures: real ones, and lines by hand for what hardly happens.

await eventful(batch)                     # every kind of arrow, on a real server; two of its runs end differently
story = await told(batch, "c0#1")         # as the command reads it
line(2, "transcript.append", …)           # one line of an export, of the second entry
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bus.chain import EMPTY_HEAD
from bus.export import export
from bus.export_format import Line
from tests.batches import S2, W2, Batch
from tests.model_calls import answered, asked, judged
from tests.tool_calls import Tools
from workers.explaining.reading import read_server
from workers.explaining.story import Step, Story

__all__ = ["arrows", "eventful", "exported", "line", "only", "told"]


async def told(batch: Batch, run: str) -> Story:
    """The story of a run of a batch on its server."""
    return (await read_server(batch.bus, batch.name, run)).story


async def exported(batch: Batch, file: Path) -> Path:
    """The batch's history in a file."""
    info = await batch.bus.info(batch.name)
    assert info is not None
    text = [one async for one in export(batch.bus.link, batch.bus.plane, batch.name, info, None)]
    file.write_text("".join(text))
    return file


async def eventful(batch: Batch) -> None:
    """`c0#1` ends as poison in its second conversation, `c1#1` is scored by a second scorer, `c2#1` raises."""
    first = await Tools.open(batch)
    await _answers(batch, first)
    fan_out = await first.put(2, n=2)
    await first.done()
    await first.done()
    await first.join(fan_out)
    late = asked(first.ref, n=3, parent=first.head, seq=4)
    await batch.bus.open_call(first.ref, late)
    await first.turn()
    second = await first.succeeded()
    await batch.bus.bind_call(first.ref, late, 1, answered("late"))
    await batch.bus.append(first.ref, first.head, first.length + 1, ["late"])
    for _ in range(2):
        await second.complete(await second.sent())
    await second.turn()
    await batch.bus.give_back(second.ref)
    await batch.sealed()
    await _scored_by_the_second(batch)
    await batch.bus.hole((await batch.claimed()).ref, "solver_error", "boom: no such file")
    third = await batch.claimed()
    await batch.claimed(W2, await batch.taken(third.entry, W2))
    poison = await batch.bus.claim(await batch.taken(third.entry, W2), batch.lease(), W2)
    assert poison.reason == "poison"
    await batch.bus.claim(await batch.forged(third.ref.run, W2), batch.lease(), W2)


async def _answers(batch: Batch, tools: Tools) -> None:
    call = asked(tools.ref)
    opened = await batch.bus.open_call(tools.ref, call)
    bound = await batch.bus.bind_call(tools.ref, call, opened.answer["desk_gen"], answered())
    again = await batch.bus.append(tools.ref, bound.answer["head"], 2, ["a note"])
    tools.head, tools.length = again.answer["head"], again.answer["length"]


async def _scored_by_the_second(batch: Batch) -> None:
    silent = await batch.scoring()
    call = judged(silent.ref)
    opened = await batch.bus.open_judge(silent.ref, call)
    await batch.bus.bind_judge(silent.ref, call, opened.answer["desk_gen"], answered("pass"))
    signed = await batch.scoring(S2, await batch.taken(silent.entry, S2))
    await batch.bus.score(silent.ref, silent.judgement)
    for _ in range(2):
        await batch.bus.score(signed.ref, signed.judgement)


def arrows(story: Story) -> list[str]:
    """Each step as `W1>B claims: generation 1`, without its notes."""
    keys = story.keys
    return [f"{keys[step.source]}>{keys[step.target]} {step.text}" for step in story.steps]


def only(story: Story, text: str) -> Step:
    """The one step whose words begin so."""
    (step,) = [step for step in story.steps if step.text.startswith(text)]
    return step


def line(
    number: int,
    by: str,
    said: str = "commit",
    *,
    args: dict[str, Any] | None = None,
    part: int = 1,
    **envelope: Any,  # noqa: ANN401 - an envelope holds anything
) -> Line:
    """A part of the numbered entry; `said`: `reject stale_gen`."""
    fence, _, op = by.partition(".")
    verb, _, reason = said.partition(" ")
    whole = {"schema": 1, "batch": "b", "plane": "live", "head": EMPTY_HEAD} | envelope
    whole = {name: value for name, value in whole.items() if value is not None}
    return Line(f"{1_000 + number}-0/{part}", fence, op, verb, reason or None, whole, args or {}, {})
