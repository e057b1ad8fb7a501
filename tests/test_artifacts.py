"""Bytes under their own digest: in the server while they are small, else in a shared directory; and always rehashed."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from moto.server import ThreadedMotoServer
from obstore.store import S3Store

from bus.artifacts import DirectoryArtifacts, open_artifacts
from bus.envelopes import MAX_PAYLOAD
from bus.errors import InputError, ViolationError
from bus.redis_bus import RedisBus
from bus.target import Target
from bus.types import BatchId, Digest
from bus.wire import Wire
from tests.batches import FixedDoor
from workers.runtime import SystemRuntime

BATCH = BatchId("b")
CANARY = "canary-secret-key"


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
        RedisBus(door, runtime, artifacts=open_artifacts(str(root))),
        RedisBus(door, runtime),
        await Wire.open(server.address()),
        root,
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


async def test_a_file_that_could_not_be_written_whole_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Full disk, or a death in the middle: a reader finds all of it or nothing, and no rest of it lies about."""
    store, digest = DirectoryArtifacts(tmp_path), digest_of(b"data")

    def fail(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(InputError, match="No space left"):
        await store.put(digest, b"data")
    assert await store.get(digest) is None
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    monkeypatch.undo()
    await store.put(digest, b"data")
    assert await store.get(digest) == b"data"


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("s3:///prefix", "no bucket is named.*s3://bucket/prefix"),
        ("gs://bucket", "nothing here reads gs://.*s3://bucket/prefix"),
        ("file://elsewhere/dir", "names no other machine.*file:///directory"),
    ],
)
def test_a_place_that_is_none_is_refused_before_anything_runs(where: str, said: str) -> None:
    """Told when the option is read, not when the first large workspace is sealed."""
    with pytest.raises(InputError, match=said):
        open_artifacts(where)


@pytest.mark.parametrize("where", ["{}", "file://{}"])
async def test_a_directory_may_be_named_as_a_path_or_as_a_url(tmp_path: Path, where: str) -> None:
    """Blanks in it as well."""
    directory, digest = tmp_path / "a b", digest_of(b"data")
    await open_artifacts(where.format(str(directory).replace(" ", "%20") if "file" in where else directory)).put(
        digest, b"data"
    )
    assert await DirectoryArtifacts(directory).get(digest) == b"data"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Store]:
    """A bucket on a server that speaks S3's protocol over HTTP; the environment says where it is."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    httpx.put(f"http://{host}:{port}/evals").raise_for_status()
    yield S3Store("evals", client_options={"allow_http": True})
    server.stop()


async def test_a_large_workspace_travels_through_a_bucket(server: Target, bucket: S3Store) -> None:
    """One machine stores, another fetches: nothing is shared but the server and the bucket."""
    data = bytes(n % 251 for n in range(MAX_PAYLOAD + 1))
    digest = digest_of(data)
    door, runtime = FixedDoor(server.address()), SystemRuntime()
    one = RedisBus(door, runtime, artifacts=open_artifacts("s3://evals/some/where"))
    other = RedisBus(door, runtime, artifacts=open_artifacts("s3://evals/some/where"))
    try:
        assert await one.put_blob(BATCH, data) == digest
        assert await one.put_blob(BATCH, data) == digest
        assert await other.get_blob(BATCH, digest) == data
        name = f"some/where/{digest[:2]}/{digest}"
        assert bytes((await bucket.get_async(name)).bytes()) == data
        await bucket.put_async(name, b"another tree")
        with pytest.raises(ViolationError, match="holds other bytes"):
            await other.get_blob(BATCH, digest)
        with pytest.raises(InputError, match="no artifact"):
            await other.get_blob(BATCH, digest_of(b"nowhere"))
    finally:
        await one.aclose()
        await other.aclose()


async def test_a_bucket_that_cannot_be_used_is_told_in_one_line_without_the_key(bucket: S3Store) -> None:
    """No such bucket: the library's own message is a page long, and quotes the request."""
    assert bucket
    store, digest = open_artifacts("s3://nobody"), digest_of(b"data")
    with pytest.raises(InputError, match=r"s3://nobody cannot be used \(.*AWS_ENDPOINT_URL") as told:
        await store.put(digest, b"data")
    assert "\n" not in str(told.value)
    assert CANARY not in str(told.value)
