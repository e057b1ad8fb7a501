"""Histories for tests: batches played on a real server, exported, and edited by somebody who means harm.

lines = await whole_history(batch)                 # every fence, deaths and late messages, closed; as exported
forged = rechained(lines)                          # as if nothing had been edited
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from bus.checker import Books, Checked, Checker
from bus.export import export
from bus.port import Group, Receipt
from bus.snapshot import Snapshot
from bus.types import Verb
from tests.batches import W1, W2, Batch
from tests.model_calls import answered, asked
from tests.tool_calls import Tools

__all__ = ["checked", "edited", "exported", "found", "holds", "parsed", "rechained", "whole_history"]

TREE = "a" * 64


async def exported(batch: Batch) -> list[bytes]:
    """What `evalbus export` would write."""
    info = await batch.bus.info(batch.name)
    assert info is not None
    snapshot = await _snapshot(batch) if info.status.ended else None
    text = export(batch.bus.link, batch.bus.plane, batch.name, info, snapshot)
    return [line.encode() async for line in text]


async def whole_history(batch: Batch) -> list[bytes]:
    """Three runs of a batch with all fences: one scored, one that lost a holder and was scored, one hole."""
    await batch.admit()
    await _asks_and_writes(batch)
    await _loses_its_holder(batch)
    third = await batch.claimed()
    assert (await batch.bus.hole(third.ref, "solver_error", "it raised")).applied
    for _ in range(2):
        scoring = await batch.scoring()
        assert (await batch.bus.score(scoring.ref, scoring.judgement)).applied
        assert (await batch.bus.score(scoring.ref, replace(scoring.judgement, bin="fail"))).verb is Verb.DUPLICATE
    await batch.closed()
    return await exported(batch)


async def _snapshot(batch: Batch) -> Snapshot:
    return Snapshot.from_rows(await batch.bus.rows(batch.name, await batch.bus.run_ids(batch.name)), batch.spec)


async def _asks_and_writes(batch: Batch) -> None:
    """A model call, a write that is told of, two tools of which one fails; then the seal, with its tree."""
    tools = await Tools.open(batch)
    call = asked(tools.ref)
    opened = await batch.bus.open_call(tools.ref, call)
    bound = await batch.bus.bind_call(tools.ref, call, opened.answer["desk_gen"], answered("said"))
    assert bound.verb is Verb.COMMIT, bound
    tools.head, tools.length = bound.answer["head"], 1
    step = f"{tools.ref.run}~0.2.w"
    written = await batch.bus.write(tools.ref, step, "fix.py", bound.answer["head"], "r1")
    receipt = Receipt(step, written.answer["receipt"])
    told = await batch.bus.append(tools.ref, tools.head, 2, ['{"kind":"write"}'], [receipt])
    tools.head, tools.length = told.answer["head"], 2
    fan_out = await tools.put(2, n=3)
    await tools.done()
    await tools.done(ok=False)
    assert (await tools.join(fan_out)).applied
    assert (await batch.bus.seal(tools.ref, tools.head, tools.length + 1, "done", TREE, "b" * 64)).applied


async def _loses_its_holder(batch: Batch) -> None:
    """Its first holder goes silent after it had a tool called, and comes back too late; the next one turns."""
    first = await Tools.open(batch)
    first.names = itertools.count(100)  # an executor's name is its own in the whole batch
    await first.put(1)
    await first.done()
    second = await first.succeeded()
    assert (await batch.bus.append(first.ref, first.head, 2, ["late"])).reason == "stale_gen"
    assert (await second.turn()).verb is Verb.IN_DOUBT
    undone = await second.claim(await batch.delivered(W2, Group.TOOLS))
    assert (await second.send(undone)).applied
    assert (await second.complete(undone)).applied
    assert (await second.turn()).verb is Verb.COMMIT
    assert not (await batch.bus.seal(first.ref, first.head, 2, "late", "", "")).applied
    assert (await batch.bus.seal(second.ref, second.head, 2, "done", "", "")).applied
    assert (await batch.bus.claim(second.entry, batch.lease(), W1)).reason == "not_owner"


# --- edits ------------------------------------------------------------------------------------------------


def parsed(line: bytes) -> dict[str, Any]:
    """A line's object."""
    said = json.loads(line)
    assert isinstance(said, dict)
    return said


def found(lines: Sequence[bytes], fence: str, op: str, verb: str = "commit", *, nth: int = 0) -> int:
    """Which of the lines is such a decision: an index, the first line of the file being 0."""
    fits = [
        index
        for index, line in enumerate(lines[1:-1], start=1)
        if [parsed(line)[name] for name in ("fence", "op", "verb")] == [fence, op, verb]
    ]
    return fits[nth]


def checked(lines: Sequence[bytes], books: Books | None = None, *, timed: bool = True) -> Checked:
    """What these lines come to."""
    checker = Checker("h.jsonl", timed=timed)
    for line in lines:
        checker.feed(line)
    return checker.finish(books)


def holds(told: Checked) -> bool:
    """Nothing is broken; what is, is shown."""
    assert told.ok, [f"{one.property}: {one.says}" for one in told.broken]
    return True


def edited(lines: Sequence[bytes], index: int, edit: Callable[[dict[str, Any]], object]) -> list[bytes]:
    """The lines with one of them edited, its chain left as it was."""
    said = parsed(lines[index])
    edit(said)
    return [*lines[:index], _line(said), *lines[index + 1 :]]


def rechained(lines: Sequence[bytes]) -> list[bytes]:
    """The lines as somebody would leave them who knows how the chain is made."""
    made, head = [lines[0]], "0" * 64
    for line in lines[1:-1]:
        said = parsed(line)
        del said["chain"]
        head = hashlib.sha256((head + _line(said).decode().removesuffix("\n")).encode()).hexdigest()
        made.append(_line({**said, "chain": head}))
    last = parsed(lines[-1]) | {"entries": len(lines) - 2, "head": head}
    return [*made, _line(last)]


def _line(said: dict[str, Any]) -> bytes:
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
