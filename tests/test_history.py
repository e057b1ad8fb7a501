"""The history as it is exported: every decision with what it was given, so that a model can be asked the same again.

A script records what its envelope does not say; the export puts both together. An event's payload stands in the
transcript, once: it is put back in place, and what was refused is shown as it was presented.
"""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bus.chain import EMPTY_HEAD, next_head
from bus.errors import ViolationError
from bus.export import export, lines
from bus.export_format import Line
from bus.models.outbox import Outbox
from bus.models.sandbox import Sandbox
from bus.models.transcript import Transcript
from bus.port import Group, Receipt
from bus.replay.replayed import Replay
from bus.target import Target
from bus.types import Digest, Plane, Verb
from bus.wire import Reply
from tests.batches import W1, W2, Batch, opened
from tests.limits import ALL
from tests.model_calls import answered, asked
from tests.tool_calls import fan_out
from workers.histories.exporting import export_batch, exported_lines

ONE = next_head(EMPTY_HEAD, "one")


@pytest.fixture
async def batch(server: Target) -> AsyncIterator[Batch]:
    """Two runs, admitted, all fences declared."""
    async with opened(server.address(), runs=2, limits=ALL) as one:
        await one.admit()
        yield one


async def told(batch: Batch, fence: str = "transcript") -> list[Line]:
    """The export's lines of one fence."""
    return [line async for line in lines(batch.bus.link, batch.keys) if line.fence == fence]


async def appended(batch: Batch, reason: str | None = None) -> list[object]:
    """The payloads of the events that were granted, or refused for this reason."""
    return [line.args["payload"] for line in await told(batch) if line.op == "append" and line.reason == reason]


# --- whose chain ------------------------------------------------------------------------------------------


async def test_each_decision_of_fence_7_names_its_conversation_for_its_run(batch: Batch) -> None:
    """Also those of steps that are about the run as a whole: the chain is theirs to name."""
    held = await batch.claimed()
    await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["one"])
    await batch.bus.turn(held.ref, ONE, "again")
    second = await batch.claimed(W2, await batch.taken(held.entry, W2))
    await batch.bus.append(second.ref, next_head(EMPTY_HEAD, "again"), 2, ["two"])
    await batch.bus.give_back(second.ref)
    assert [(line.op, line.args["run"]) for line in await told(batch)] == [
        ("lease", "c0#1~0"),
        ("append", "c0#1~0"),
        ("fence", "c0#1~0"),
        ("lease", "c0#1~1"),
        ("append", "c0#1~1"),
        ("lease", "c0#1~1"),
        ("append", "c0#1~1"),
        ("fence", "c0#1~1"),
    ]


async def test_the_model_of_fence_7_takes_every_recorded_decision_again(batch: Batch) -> None:
    """Two holders, two conversations, events that came late and a seal: heads and refusals are the model's own."""
    held = await batch.claimed()
    await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["one", "more"])
    head = next_head(ONE, "more")
    await batch.bus.turn(held.ref, head, "again")
    now = replace(held.ref, conversation=1)
    again = next_head(EMPTY_HEAD, "again")
    assert (await batch.bus.append(now, again, 2, ["two"])).verb is Verb.COMMIT
    second = await batch.claimed(W2, await batch.taken(held.entry, W2))
    assert (await batch.bus.append(now, next_head(again, "two"), 3, ["late"])).reason == "run_mismatch"
    wrong = await batch.bus.seal(second.ref, again, 3, "answer", "", "")
    assert wrong.reason == "forged_prefix"
    right = await batch.bus.seal(second.ref, next_head(again, "two"), 3, "answer", "", "")
    assert right.verb is Verb.COMMIT
    model = Transcript()
    for line in await told(batch):
        answer = model.decide(line.op, line.args).as_dict()
        said: dict[str, Any] = {"verb": line.verb, "reason": line.reason, **line.answer}
        said.pop("gen", None)  # minted by whoever grants it
        assert {name: answer.get(name) for name in said} == said, (line, answer)
    (row,) = await batch.bus.rows(batch.name, [held.ref.run])
    chain = model.dump()["transcripts"]["c0#1~1"]  # type: ignore[index]
    assert (chain["head"], chain["sealed"]) == (row.head, True)


# --- what an event says -------------------------------------------------------------------------------------


async def test_the_payload_of_every_kind_of_event_is_put_back_in_place(batch: Batch) -> None:
    """Appended, bound, joined, resolved, sealed: each stands once in the transcript, and once in the export."""
    held = await batch.claimed()
    await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["one"])
    call = asked(held.ref, n=2, parent=ONE, seq=2)
    desk_gen = (await batch.bus.open_call(held.ref, call)).answer["desk_gen"]
    bound = await batch.bus.bind_call(held.ref, call, desk_gen, answered("bound"))
    assert bound.verb is Verb.COMMIT
    lost = asked(held.ref, n=3, parent=bound.answer["head"], seq=3)
    assert (await batch.bus.open_call(held.ref, lost)).verb is Verb.COMMIT
    held = await batch.claimed(W2, await batch.taken(held.entry, W2))
    resolved = await batch.bus.resolve(held.ref, bound.answer["head"], 3, "lost")
    assert resolved.verb is Verb.COMMIT
    head = next_head(bound.answer["head"], "lost")
    assert (await batch.bus.seal(held.ref, Digest(head), 4, "answer", "", "")).verb is Verb.COMMIT
    assert await appended(batch) == ["one", "bound", "lost", "answer"]


async def test_an_event_that_was_refused_is_told_as_it_was_presented(batch: Batch) -> None:
    """It is evidence: what the late one said, in the place where its script takes it."""
    held = await batch.claimed()
    out = fan_out(held.ref, "book")
    call = asked(held.ref, n=2)
    desk_gen = (await batch.bus.open_call(held.ref, call)).answer["desk_gen"]
    second = await batch.claimed(W2, await batch.taken(held.entry, W2))
    assert (await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["late"])).reason == "stale_gen"
    assert (await batch.bus.seal(held.ref, EMPTY_HEAD, 1, "late answer", "", "")).reason == "stale_gen"
    assert (await batch.bus.bind_call(held.ref, call, desk_gen, answered("late reply"))).reason == "stale_lease"
    assert not (await batch.bus.join(held.ref, out, "late join")).applied
    assert await appended(batch, "stale_gen") == ["late", "late answer"]
    assert (await batch.bus.append(second.ref, ONE, 1, ["on another prefix"])).reason == "forged_prefix"
    assert await appended(batch, "forged_prefix") == ["on another prefix"]


async def test_the_event_of_several_that_was_refused_is_the_one_that_is_told(batch: Batch) -> None:
    """They come in one command, a head and a payload each, and before the receipts."""
    held = await batch.claimed()
    step = f"{held.ref.run}~0.1.w"
    await batch.bus.write(held.ref, step, "a.txt", Digest("c" * 64), "receipt")
    await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["one"])
    decision = await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["one", "two"], [Receipt(step, "receipt")])
    assert decision.verb is Verb.COMMIT
    parent = next_head(ONE, "two")
    call = asked(held.ref, n=5, parent=parent, seq=4)
    assert (await batch.bus.open_call(held.ref, call)).verb is Verb.COMMIT
    refused = await batch.bus.append(held.ref, parent, 3, ["three", "four"])
    assert refused.reason == "intent_mismatch"
    assert await appended(batch, "intent_mismatch") == ["four"]


async def test_a_joined_event_stands_in_the_export_with_its_observations(batch: Batch) -> None:
    """They enter the transcript there and nowhere else."""
    held = await batch.claimed()
    out = fan_out(held.ref, "book")
    await batch.bus.put_tools(held.ref, out)
    entry = await batch.delivered(W1, Group.TOOLS)
    await batch.bus.tool_claim(entry, "executor", W1)
    await batch.bus.dead_letter(entry, W2, "not its owner")
    assert await appended(batch) == []
    intended = [line for line in await told(batch) if line.op == "intend"]
    assert [(line.args["run"], line.args["digest"]) for line in intended] == [("c0#1~0", "d" * 64)]


async def test_an_event_that_is_in_no_transcript_is_a_violation(batch: Batch) -> None:
    """The history says that it was granted. Somebody has cut the transcript, or the server lost it."""
    held = await batch.claimed()
    await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["one"])
    transcript = batch.keys.transcript(held.ref.run, 0)
    event = await batch.wire.call("LPOP", transcript)
    with pytest.raises(ViolationError, match=r"run c0#1~0: event 1 is in the history but not in the transcript"):
        await appended(batch)
    await batch.wire.call("RPUSH", transcript, event)


# --- the other fences -----------------------------------------------------------------------------------------


async def test_the_model_of_fence_8_takes_every_recorded_decision_again(batch: Batch) -> None:
    """Lives of a workspace and what was written in them; its epochs are numbers that the model mints alike."""
    held = await batch.claimed()
    step = f"{held.ref.run}~0.1.w"
    await batch.bus.write(held.ref, step, "a.txt", Digest("c" * 64), "receipt")
    await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["one"], [Receipt(step, "receipt")])
    second = await batch.claimed(W2, await batch.taken(held.entry, W2))
    await batch.bus.give_back(second.ref)
    model = Sandbox(heartbeat_ms=10**9)
    ops = []
    for line in await told(batch, "sandbox"):
        answer = model.decide(line.op, line.args).as_dict()
        assert (answer["verb"], answer["reason"]) == (line.verb, line.reason), (line, answer)
        ops.append(line.op)
    assert ops == ["acquire", "plan", "write", "join", "acquire", "preempt"]


async def test_the_model_of_fence_2_takes_every_recorded_decision_again(batch: Batch) -> None:
    """A call's arguments are text on the server: exported they are the object that they were presented as."""
    held = await batch.claimed()
    calls = fan_out(held.ref, "book")
    await batch.bus.put_tools(held.ref, calls)
    others = [replace(one, args='{"x":2}') for one in calls.intents]
    assert (await batch.bus.put_tools(held.ref, replace(calls, intents=others))).reason == "args_mismatch"
    await batch.bus.tool_claim(await batch.delivered(W1, Group.TOOLS), "executor", W1)
    model = Outbox(ack_bound_ms=10**9, inverses={})
    said = []
    for line in await told(batch, "outbox"):
        derived = model.decide(line.op, line.args).as_dict()
        recorded = {"verb": line.verb, "reason": line.reason, **line.answer}
        assert {name: derived.get(name) for name in recorded} == recorded, line
        said.append((line.op, line.answer["args"]))
    assert said == [("put", {"x": 1}), ("put", {"x": 1}), ("claim", {"x": 1})]


@pytest.mark.parametrize("number", ["0x10", "NaN"])
async def test_arguments_that_are_json_to_a_server_alone_are_told_as_they_came(batch: Batch, number: str) -> None:
    """A client of somebody else's: what its library takes for a number need not be one, and must not end an export."""
    held = await batch.claimed()
    calls = fan_out(held.ref, "book")
    foreign = replace(calls, intents=[replace(one, args=f'{{"x":{number}}}') for one in calls.intents])
    assert (await batch.bus.put_tools(held.ref, foreign)).applied
    (line,) = await told(batch, "outbox")
    assert line.args["args"] == line.answer["args"] == [f'{{"x":{number}}}']


async def test_the_first_line_tells_what_the_fences_were_configured_with(batch: Batch) -> None:
    """A model that is to take the decisions again must know the bounds that they were taken under."""
    info = await batch.bus.info(batch.name)
    assert info is not None
    found = [json.loads(line) async for line in export(batch.bus.link, Plane.LIVE, batch.name, info, None)]
    assert found[0]["policy"]["limits"] == ALL
    assert found[-1]["entries"] == len(found) - 2


# --- as a whole -----------------------------------------------------------------------------------------------


async def test_a_batch_that_ends_while_it_is_read_has_its_snapshot_in_the_last_line(server: Target) -> None:
    """Whoever looked at the batch before, and not when the end has gone by, writes a history that is not true."""
    async with opened(server.address(), runs=2) as batch:
        await batch.admit()
        await batch.scored()
        info = await batch.bus.info(batch.name)
        assert info is not None
        assert not info.status.ended
        reading = exported_lines(batch.bus, batch.name, info)
        found = [await anext(reading)]
        await batch.scored()
        snapshot = await batch.closed()
        found += [line async for line in reading]
        assert json.loads(found[-1])["snapshot"]["snapshot_id"] == snapshot.snapshot_id
        replay = Replay("h.jsonl")
        for line in found:
            replay.feed(line)
        assert replay.finish().snapshot_id == snapshot.snapshot_id


async def test_a_batch_below_its_quorum_has_its_snapshot_too(server: Target) -> None:
    """It is refused a number, and has ended all the same."""
    async with opened(server.address(), runs=1) as batch:
        await batch.admit()
        await batch.end(batch.runs[0])
        assert (await batch.bus.close(batch.name, "0" * 64, 0)).reason == "below_quorum"
        info = await batch.bus.info(batch.name)
        assert info is not None
        *_, last = [line async for line in exported_lines(batch.bus, batch.name, info)]
        assert json.loads(last)["snapshot"]["holes"] == [["c0#1", "operator"]]


async def repeated(batch: Batch, times: int) -> None:
    """The latest entry of the history, so many times more: a history may be as long as it likes."""
    ((_, flat),) = await batch.wire.call("XREVRANGE", batch.keys.history, "+", "-", "COUNT", 1)
    for _ in range(0, times, 500):
        await batch.wire.calls([("XADD", batch.keys.history, "*", *flat)] * 500)


async def test_the_payloads_of_a_history_are_asked_for_many_at_a_time(
    batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One round trip a line would take longer than all the rest."""
    held = await batch.claimed()
    await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["one"])
    await repeated(batch, 2_000)
    trips, link = Counter[str](), batch.bus.link
    one, many = link.command, link.commands

    async def command(*words: str | bytes | int) -> Reply:
        trips["one"] += 1
        return await one(*words)

    async def commands(batch: Sequence[Sequence[str | bytes | int]]) -> list[Reply]:
        trips["many"] += 1
        return await many(batch)

    monkeypatch.setattr(link, "command", command)
    monkeypatch.setattr(link, "commands", commands)
    assert len(await appended(batch)) == 2_001
    assert 0 < trips.total() < 2_001 / 50


async def test_the_memory_that_an_export_takes_does_not_grow_with_the_history(batch: Batch, tmp_path: Path) -> None:
    """Measured: four times the entries, and the same peak."""
    held = await batch.claimed()
    await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["one" * 500])
    peaks, sizes = [], []
    for more in (1_000, 3_000):
        await repeated(batch, more)
        tracemalloc.start()
        sizes.append(await export_batch(batch.bus, batch.name, tmp_path / "h.jsonl.zst"))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert sizes[1] > 3.9 * sizes[0]
    assert peaks[1] < 1.2 * peaks[0], peaks
