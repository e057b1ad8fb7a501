"""What another client presents as text, and is none: the export carries it, and replay says what the script said."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from bus.chain import EMPTY_HEAD, next_head
from bus.errors import ViolationError
from bus.port import Group
from bus.scripts import script
from bus.target import Target
from bus.types import Decision
from tests.archiving import archivist_of, info_of
from tests.batches import S1, Batch, Held
from tests.histories import checked, exported, holds
from tests.limits import ALL
from workers.histories.exporting import exported_lines
from workers.histories.replaying import replay_file

HALF = b"\xed\xa0\xbd"
"""Half of a surrogate pair, as a client with another JSON library would send it: U+D83D."""
TEXTS = {"half-a-pair": (HALF, "\ud83d"), "no-utf8": (b"\xff", "\udcff")}


@pytest.fixture
async def batch(server: Target) -> AsyncIterator[Batch]:
    """Two runs, admitted."""
    one = await Batch.open(server.address(), runs=2, limits=ALL)
    await one.admit()
    yield one
    await one.aclose()


async def append(batch: Batch, held: Held, head: bytes, payload: bytes = b"said", **fields: object) -> Decision:
    """Append an event with these bytes, without any client of ours."""
    envelope: dict[str, Any] = {
        "schema": 1, "plane": "live", "batch": batch.name, "run": held.ref.run, "lease_id": held.ref.lease_id,
        "gen": held.ref.gen, "conversation": 0, "epoch": 0, "parent": EMPTY_HEAD, "seq": 1, "events": 1,
        "receipts": 0, **fields,
    }  # fmt: skip
    keys = batch.keys
    places = {
        "run": keys.run(held.ref.run), "batch": keys.batch_row, "leases": keys.leases,
        "transcript": keys.transcript(held.ref.run, 0), "dead": keys.dead, "history": keys.history,
    }  # fmt: skip
    packed = msgpack.packb(envelope, use_bin_type=False)
    return await batch.bus.link.run(script("run.append"), places, {"envelope": packed, "items": [head, payload]})


async def seal(batch: Batch, held: Held, head: bytes) -> Decision:
    """Seal a run with an answer of that head, likewise."""
    envelope: dict[str, Any] = {
        "schema": 1, "plane": "live", "batch": batch.name, "run": held.ref.run, "lease_id": held.ref.lease_id,
        "gen": held.ref.gen, "conversation": 0, "parent": EMPTY_HEAD, "seq": 1, "head": head,
    }  # fmt: skip
    keys = batch.keys
    places = {
        "run": keys.run(held.ref.run), "batch": keys.batch_row, "leases": keys.leases, "planes": keys.planes,
        "transcript": keys.transcript(held.ref.run, 0), "dead": keys.dead, "runs": keys.stream("runs"),
        "scores": keys.stream("scores"), "history": keys.history,
    }  # fmt: skip
    packed = msgpack.packb(envelope, use_bin_type=False)
    return await batch.bus.link.run(script("run.seal"), places, {"envelope": packed, "payload": "said"})


def replayed(lines: list[bytes], file: Path) -> None:
    """Raises what replay does; the checker, which has a reader of its own, finds nothing either."""
    file.write_bytes(b"".join(lines))
    replay_file(file, None)
    assert holds(checked(lines))


def of_append(lines: list[bytes]) -> Any:  # noqa: ANN401 - a line's JSON
    """The last line about an event."""
    return json.loads([line for line in lines if b'"op":"append"' in line][-1])


@pytest.mark.parametrize("what", TEXTS)
async def test_a_head_that_is_no_text_is_exported_and_replay_names_its_line(
    batch: Batch, tmp_path: Path, what: str
) -> None:
    """The script grants any head: it cannot hash. Replay can, and names the head that the event has."""
    raw, text = TEXTS[what]
    held = await batch.claimed()
    said = await append(batch, held, raw)
    assert (said.applied, said.answer["head"]) == (True, text)
    lines = await exported(batch)
    said = of_append(lines)
    assert (said["verb"], said["answer"]["head"], said["args"]["payload"]) == ("commit", text, "said")
    true = hashlib.sha256(EMPTY_HEAD.encode() + b"said").hexdigest()
    with pytest.raises(
        ViolationError, match=rf'transcript\.append: recorded commit .* derived commit {{"head":"{true}"}}'
    ):
        replayed(lines, tmp_path / "h.jsonl")
    info = await info_of(batch)
    assert await archivist_of(batch, tmp_path, segment=2).tend(info) > 0
    assert [line async for line in exported_lines(batch.bus, batch.name, info, tmp_path)] == lines


@pytest.mark.parametrize("what", TEXTS)
async def test_a_head_that_is_no_text_is_that_runs_own_trouble_and_of_none_that_is_asked_about_beside_it(
    batch: Batch, what: str
) -> None:
    """One call answers all scorers' claims of a moment. It could not be read, and none of them had what was granted."""
    raw, text = TEXTS[what]
    held = [await batch.claimed(), await batch.claimed()]
    assert (await seal(batch, held[0], raw)).applied
    assert (await batch.bus.seal(held[1].ref, EMPTY_HEAD, 1, "said", "", "")).applied
    entries = await batch.bus.read(Group.SCORER, S1, [batch.name], 2, 1)
    said = await asyncio.gather(*(batch.bus.score_claim(entry, batch.lease(), S1) for entry in entries))
    assert [one.applied for one in said] == [True, True]
    assert [one.answer["head"] for one in said] == [text, next_head(EMPTY_HEAD, "said")]
    [event] = await batch.bus.transcript(batch.name, held[0].ref.run, said[0].answer["head"])
    assert event.payload == "said", "what is no hash is found out by whoever computes it"
    assert [row.head for row in await batch.bus.rows(batch.name, batch.runs)] == [one.answer["head"] for one in said]


@pytest.mark.parametrize("what", TEXTS)
async def test_a_parent_that_is_no_text_is_refused_as_one_that_is_false(
    batch: Batch, tmp_path: Path, what: str
) -> None:
    """It is not the head that there is, whatever it is: that is what the script says, and what replay says."""
    raw, text = TEXTS[what]
    held = await batch.claimed()
    assert (await append(batch, held, b"x", parent=raw)).reason == "forged_prefix"
    lines = await exported(batch)
    said = of_append(lines)
    assert (said["reason"], said["args"]["parent"], said["envelope"]["parent"]) == ("forged_prefix", text, text)
    replayed(lines, tmp_path / "h.jsonl")


async def test_a_late_head_and_event_that_are_no_text_are_refused_as_late(batch: Batch, tmp_path: Path) -> None:
    """What was presented whole is kept with the refusal."""
    held = await batch.claimed()
    assert (await append(batch, held, HALF, b"\xff", gen=7)).reason == "stale_gen"
    lines = await exported(batch)
    assert of_append(lines)["args"]["payload"] == "\udcff"
    replayed(lines, tmp_path / "h.jsonl")


async def test_an_event_with_half_a_pair_and_the_head_of_its_bytes_is_proved(batch: Batch, tmp_path: Path) -> None:
    """The script grants it and the hash is of its bytes: replay derives the same one."""
    held = await batch.claimed()
    head = hashlib.sha256(EMPTY_HEAD.encode() + HALF).hexdigest()
    assert (await append(batch, held, head.encode(), HALF)).applied
    lines = await exported(batch)
    assert of_append(lines)["args"]["payload"] == "\ud83d"
    replayed(lines, tmp_path / "h.jsonl")
    [event] = await batch.bus.transcript(batch.name, held.ref.run)
    assert event.payload == "\ud83d"
