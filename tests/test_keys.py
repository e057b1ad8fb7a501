"""Keys: plane first, one hash slot a shard, and no two things under one name."""

from __future__ import annotations

import gc
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import bus.keys
from bus.keys import RUNS_DESK, BatchKeys, bell, endpoint, mark, registry, rests
from bus.port import Group
from bus.redis_bus import RedisBus
from bus.types import BatchId, Digest, Plane, RunId
from bus.wire import Address
from tests.batches import FixedDoor
from workers.runtime import SystemRuntime

IDS = st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters=":"), min_size=1, max_size=20)
"""What a batch, a case or a desk may be called: anything without a colon and without control characters."""


def keys_of(keys: BatchKeys, name: str) -> list[str]:
    """Every key that a batch can have, with `name` wherever one holds a name."""
    return [
        keys.batch_row,
        keys.leases,
        keys.planes,
        *map(keys.undo, Plane),
        keys.requests,
        keys.index,
        keys.slots,
        keys.bundle,
        keys.loops,
        keys.review,
        keys.history,
        keys.dead,
        *(keys.stream(group.stream) for group in Group),
        keys.run(RunId(name)),
        keys.transcript(RunId(name), 7),
        keys.desk(name),
        keys.blob(Digest(name)),
    ]


@given(st.sampled_from(Plane), IDS, st.integers(0, 99), IDS)
def test_all_keys_of_a_shard_share_one_hash_tag(plane: Plane, batch: str, shard: int, name: str) -> None:
    """A script touches several of them, so they must lie in one slot; an access list goes by what comes first.

    The tag is what stands between the first brace and the next closing one: names may hold braces as they like.
    """
    keys = BatchKeys(plane, BatchId(batch), shard)
    for key in [*keys_of(keys, name), keys.registry]:
        assert key.startswith(f"evb:{{{plane}.{shard}}}:")
        assert key[key.index("{") + 1 : key.index("}")] == f"{plane}.{shard}"


@given(IDS, IDS, IDS, IDS)
def test_no_two_things_have_one_key(batch: str, name: str, other_batch: str, other: str) -> None:
    """Names cannot hold a colon, so nobody can name a run so that its row is another's transcript."""
    mine = keys_of(BatchKeys(Plane.LIVE, BatchId(batch)), name)
    yours = keys_of(BatchKeys(Plane.LIVE, BatchId(other_batch)), other)
    assert len(set(mine)) == len(mine)
    if batch != other_batch:
        assert not set(mine) & set(yours)
    if name != other:
        assert set(mine) & set(yours) <= set(mine[:-4])
    assert registry(Plane.LIVE) not in mine


def test_planes_and_shards_have_no_key_in_common() -> None:
    """A shadow batch of the same name writes beside the live one, never over it."""
    found = [
        key
        for plane in Plane
        for shard in (0, 1)
        for key in [*keys_of(BatchKeys(plane, BatchId("b"), shard), "x"), registry(plane, shard)]
    ]
    assert len(set(found)) == len(found)


def test_the_list_of_keys_at_the_modules_top_is_complete() -> None:
    """It is what a reader, and who writes an access list, goes by."""
    text = Path(bus.keys.__file__).read_text("utf-8").split('"""')[1]
    listed = set()
    for template in re.findall(r"^ +(evb:\S+)", text, re.MULTILINE):
        head, _, last = template.rpartition(":")
        listed |= {f"{head}:{choice}" for choice in last.split("|")} if "|" in last else {template}
    keys = BatchKeys(Plane.LIVE, BatchId("<batch>"))
    built = set(keys_of(keys, "<run>")) | {registry(Plane.LIVE), keys.desk("<name>"), keys.blob(Digest("<digest>"))}
    built = {key.replace("<run>~7", "<run>~<conversation>") for key in built} | {endpoint(Plane.LIVE, "<endpoint>")}
    built |= {mark(Plane.LIVE), bell(Plane.LIVE), rests(Plane.LIVE)}
    assert listed == built - {keys.desk("<run>"), keys.blob(Digest("<run>"))}
    assert RUNS_DESK == "runs"


def test_a_bus_does_not_grow_with_the_batches_that_it_was_ever_asked_about() -> None:
    """They are spelt once for many calls, and again when one that was forgotten comes up: a late message, say."""
    one = RedisBus(FixedDoor(Address(path="/nowhere")), SystemRuntime())
    names = [BatchId(f"one-of-many-{number}") for number in range(2_000)]
    for name in names:
        assert one._scope(name)["batch"] == BatchKeys(Plane.LIVE, name).batch_row
    kept = [known for known in gc.get_objects() if isinstance(known, BatchKeys) and known.batch in names]
    assert len(kept) < 200
    assert one.keys(names[0]) == BatchKeys(Plane.LIVE, names[0])
    assert len(one._scope(names[0])) == len(one._scope(names[-1]))
