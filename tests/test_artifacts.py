"""Bytes under their own digest: in the server while they are small, else in a shared directory; and always rehashed."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bus.artifacts import ArtifactStore
from bus.envelopes import MAX_PAYLOAD
from bus.errors import InputError, ViolationError
from bus.redis_bus import RedisBus
from bus.target import Target
from bus.types import BatchId, Digest
from bus.wire import Wire
from tests.batches import FixedDoor
from workers.runtime import SystemRuntime

BATCH = BatchId("b")


def digest_of(data: bytes) -> Digest:
    """SHA-256 in hex."""
    return Digest(hashlib.sha256(data).hexdigest())


@dataclass(frozen=True, slots=True)
class Stores:
    """A bus with a shared directory, one without, and a connection to look."""

    shared: RedisBus
    alone: RedisBus
    wire: Wire
    root: Path


@pytest.fixture
async def stores(server: Target, tmp_path: Path) -> AsyncIterator[Stores]:
    """On the session's server, in a directory that does not exist yet."""
    door, runtime = FixedDoor(server.address()), SystemRuntime()
    root = tmp_path / "artifacts"
    one = Stores(
        RedisBus(door, runtime, artifacts=root), RedisBus(door, runtime), await Wire.open(server.address()), root
    )
    yield one
    await one.shared.aclose()
    await one.alone.aclose()
    one.wire.close()


@pytest.mark.parametrize("size", [0, 1, MAX_PAYLOAD, MAX_PAYLOAD + 1])
async def test_what_was_stored_is_fetched_under_its_digest(stores: Stores, size: int) -> None:
    """On either side of the limit, any bytes; storing twice is storing once."""
    data = bytes(n % 251 for n in range(size))
    assert await stores.shared.put_blob(BATCH, data) == digest_of(data)
    assert await stores.shared.put_blob(BATCH, data) == digest_of(data)
    assert await stores.shared.get_blob(BATCH, digest_of(data)) == data
    assert stores.root.exists() == (size > MAX_PAYLOAD)


async def test_what_is_too_large_for_the_server_needs_a_directory(stores: Stores) -> None:
    """Said with the remedy, and nothing is sent."""
    with pytest.raises(InputError, match=f"an artifact of {MAX_PAYLOAD + 1} bytes .*--artifacts DIR"):
        await stores.alone.put_blob(BATCH, b"x" * (MAX_PAYLOAD + 1))
    assert await stores.wire.call("KEYS", "*") == []


async def test_an_artifact_that_is_nowhere_is_said_to_be(stores: Stores) -> None:
    """A scorer that was started without the directory in which the workers store."""
    for bus in (stores.shared, stores.alone):
        with pytest.raises(InputError, match=r"no artifact .*--artifacts DIR"):
            await bus.get_blob(BATCH, digest_of(b"nowhere"))


@pytest.mark.parametrize("size", [10, MAX_PAYLOAD + 1])
async def test_bytes_that_are_not_those_that_were_named_are_never_returned(stores: Stores, size: int) -> None:
    """Edited in the server, or in the directory: what would be scored is not what was sealed."""
    digest = await stores.shared.put_blob(BATCH, b"x" * size)
    if size > MAX_PAYLOAD:
        (path,) = [path for path in stores.root.rglob("*") if path.is_file()]
        path.write_bytes(b"y" * size)
    else:
        await stores.wire.call("SET", stores.shared.keys(BATCH).blob(digest), b"y" * size)
    with pytest.raises(ViolationError, match=f"{digest} holds other bytes"):
        await stores.shared.get_blob(BATCH, digest)


def test_a_file_that_could_not_be_written_whole_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Full disk, or a death in the middle: a reader finds all of it or nothing, and no rest of it lies about."""
    store, digest = ArtifactStore(tmp_path), digest_of(b"data")

    def fail(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        store.put(digest, b"data")
    assert store.get(digest) is None
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    monkeypatch.undo()
    store.put(digest, b"data")
    assert store.get(digest) == b"data"
