"""The short form of a history's entries: nothing is lost in it, and what it has no place for is kept in the long one.

That it says what was decided is also compared in `tests/test_two_buses.py`: there the other bus writes no entries.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict

import msgpack
import pytest

from bus.chain import EMPTY_HEAD
from bus.contract import CONTRACT
from bus.entries import Entries
from bus.envelopes import Head, encode
from bus.errors import ViolationError
from bus.recorded import Recorded
from bus.shorthand import COMMANDS, FIELD, PARTS, Shape, read, spell
from bus.target import Target
from bus.types import Verb
from tests.batches import W1, Batch, opened
from tests.histories import exported
from tests.limits import ALL

_AS_RELEASED = "26198855"
"""Of the tables' lines. A line that was added at the end changes it; one that means something else breaks histories."""


@pytest.fixture
async def batch(server: Target) -> AsyncIterator[Batch]:
    """Two runs, admitted, all fences declared."""
    async with opened(server.address(), runs=2, limits=ALL) as one:
        await one.admit()
        yield one


async def kept(batch: Batch) -> list[tuple[str, dict[bytes, bytes]]]:
    """The entries as they lie there: the command, and the stream's fields."""
    found = await batch.wire.call("XRANGE", batch.keys.history, "-", "+")
    told = await Entries(batch.bus.link, batch.keys).read(found)
    return [
        (entry.command, dict(zip(flat[::2], flat[1::2], strict=True)))
        for entry, (_, flat) in zip(told, found, strict=True)
    ]


async def told(batch: Batch) -> list[Recorded]:
    """The entries as they are read."""
    return await Entries(batch.bus.link, batch.keys).read(await batch.wire.call("XRANGE", batch.keys.history, "-", "+"))


async def test_what_a_run_comes_by_is_kept_short(server: Target) -> None:
    """Each step of a run that goes as it should; only the batch's own entries are long."""
    async with opened(server.address(), runs=1) as batch:
        await batch.admit()
        await batch.scored()
        long = [command for command, fields in await kept(batch) if FIELD not in fields]
        assert long == ["run.create"]
        size = await batch.wire.call("MEMORY", "USAGE", batch.keys.run(batch.runs[0]), "SAMPLES", 0)
        assert size < 1_100
        assert await batch.wire.call("OBJECT", "ENCODING", batch.keys.run(batch.runs[0])) == b"listpack"


async def test_both_forms_say_the_same(server: Target) -> None:
    """A batch that an older release declared has no `lives` in its row: its entries stay in the long form."""
    said = []
    for name, is_short in (("a", True), ("b", False)):
        async with contextlib.aclosing(await Batch.open(server.address(), runs=1, name=name)) as batch:
            if not is_short:
                await batch.wire.call("HDEL", batch.keys.batch_row, "lives")
            await batch.admit()
            held = await batch.claimed()
            assert (await batch.bus.claim(held.entry, held.ref.lease_id, W1)).verb is Verb.DUPLICATE
            await batch.bus.turn(held.ref, EMPTY_HEAD, "again")
            await batch.bus.give_back(held.ref)
            held = await batch.claimed()
            head, length = held.decision.answer["head"], held.decision.answer["length"]
            assert (await batch.bus.seal(held.ref, head, length + 1, "answer", "", "")).applied
            scoring = await batch.scoring()
            assert (await batch.bus.score(scoring.ref, scoring.judgement)).applied
            assert any(FIELD in fields for _, fields in await kept(batch)) is is_short
            said.append(_plain(await told(batch)))
    assert said[0] == said[1]


def _plain(entries: Sequence[Recorded]) -> list[object]:
    """What they say, without what is random, or another batch's."""
    place = next(entry.envelope["command_id"] for entry in entries if entry.command == "run.admit")
    found: list[object] = []
    for entry in entries:
        if entry.command != "run.create":
            envelope = {name: value for name, value in entry.envelope.items() if name != "batch"}
            text = json.dumps([entry.command, envelope, [asdict(part) for part in entry.parts]], sort_keys=True)
            found.append(json.loads(re.sub(r"\d{13,}-\d+", "ENTRY", text.replace(place, "PLACE"))))
    return found


async def test_what_no_table_names_is_kept_whole(batch: Batch) -> None:
    """A field that another release's client sends too: it would be lost, so the entry is long."""
    entry = await batch.delivered()
    decision = await batch.bus._step(
        "claim", batch.name, run=entry.run, lease_id=batch.lease(), entry=entry.id, consumer=W1, mood="fair"
    )
    assert decision.applied
    command, fields = (await kept(batch))[-1]
    assert command == "run.claim"
    assert FIELD not in fields
    assert (await told(batch))[-1].envelope["mood"] == "fair"


async def test_a_field_that_is_named_by_a_number_leaves_the_entry_readable(
    batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No client of ours does; the scripts grant it all the same, and the whole history must still be exported."""
    held = await batch.claimed()

    def numbered(fields: Mapping[str, object], head: Head) -> bytes:
        packed: bytes = msgpack.packb({**msgpack.unpackb(encode(fields, head)), 7: "x"})
        return packed

    monkeypatch.setattr("bus.redis_steps.encode", numbered)
    assert (await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["said"])).applied
    monkeypatch.undo()
    entry = (await told(batch))[-1]
    assert (entry.envelope["run"], entry.envelope["7"]) == (held.ref.run, "x")
    assert any(b'"payload":"said"' in line for line in await exported(batch))


async def test_each_entry_names_the_server_on_which_it_was_decided(batch: Batch) -> None:
    """Ids of servers are kept once, and an entry says which: after a restart the ones before must not change."""
    await batch.claimed()
    row = batch.keys.batch_row
    now = (await batch.wire.call("HGET", row, "server")).decode()
    await batch.wire.call("HSET", row, "server", "former", "life:1", "former")
    await batch.claimed()  # meets another server than the row names, and voids what was granted before
    claims = [entry.envelope["server"] for entry in await told(batch) if entry.command == "run.claim"]
    assert claims[0] == "former"
    assert claims[-1] == now
    assert await batch.batch_field("lives") == "2"


async def test_an_entry_of_a_later_release_is_told_in_one_line(batch: Batch) -> None:
    """It names a command, or a part, that no table here has: it must not be read as something else."""
    for words in ([999, 1, 0], [2, 1, 0, "c0#1", "L1", "1-0", "w", 63], [2, 1, 7, "c0#1", "L1", "1-0", "w"], [2, 1]):
        entry = await batch.wire.call("XADD", batch.keys.history, "*", FIELD, msgpack.packb(words))
        with pytest.raises(ViolationError, match=f"^batch b, entry {entry.decode()} of its history: "):
            await told(batch)
        await batch.wire.call("XDEL", batch.keys.history, entry)


def test_texts_that_are_no_text_are_shown_all_the_same() -> None:
    """Bytes that no client of ours sends; whoever reads the history must not stop there."""
    packed = msgpack.packb([5, 1, 0, b"c0#1", b"\xff", b"1-0", b"s1"], use_bin_type=False)
    assert spell(read(packed), "live", "b", None).envelope["lease_id"] == "\udcff"


def test_the_numbers_mean_for_good_what_they_mean() -> None:
    """They are on servers. Each is there once, has one byte, and names what the contract has."""
    assert _digest(COMMANDS + PARTS) == _AS_RELEASED
    for shapes, most in ((COMMANDS, 127), (PARTS, 63)):
        numbers = [shape.number for shape in shapes]
        assert len({*numbers}) == len(numbers)
        assert all(0 < number <= most for number in numbers)
    for shape in PARTS:
        fence, _, op = shape.name.partition(".")
        assert {*shape.answers} <= {*CONTRACT[fence].ops[op].answers}


def _digest(shapes: tuple[Shape, ...]) -> str:
    return hashlib.sha256("\n".join(map(str, shapes)).encode()).hexdigest()[:8]
