"""Suite bundles: a worker elsewhere runs what was signed, and nothing else. Against a real server."""

from __future__ import annotations

import io
import json
import tarfile
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bus.errors import InputError, ViolationError
from bus.redis_bus import RedisBus
from bus.server import unix_url
from bus.target import Target
from bus.types import BatchId
from bus.wire import Wire
from tests.batches import FixedDoor
from tests.fleet import Stage, case, eventually
from tests.suites import make_suite
from workers.bundle import BUNDLE_KEY, BundleKey, Reference, fetch, publish, take_key
from workers.runtime import SystemRuntime
from workers.suite import Suite, load_suite

BATCH = BatchId("b")
KEY = BundleKey(b"canary-0123456789abcdef")

_TELLS = """\
from pathlib import Path

from workers.suite import Suite

Path({marker!r}).touch()
suite = Suite(cases=[dict(id="a", input="1", target="1")], solver=dict(command=["cat"]), scorer=dict(kind="exact"))
"""


@dataclass(frozen=True, slots=True)
class Fixture:
    """A suite that leaves a mark when any of it runs, and a bus."""

    bus: RedisBus
    wire: Wire
    suite: Suite
    marker: Path
    into: Path

    async def fetched(self, key: BundleKey | None = KEY, batch: BatchId = BATCH) -> Path:
        """As a role with `--fetch-suite` does."""
        return await fetch(self.bus, batch, self.suite.digest, key, self.into)

    @property
    def untouched(self) -> bool:
        """Nothing ran, and nothing was unpacked."""
        return not self.marker.exists() and not (self.into.exists() and any(self.into.rglob("*")))


@pytest.fixture
async def one(server: Target, tmp_path: Path) -> AsyncIterator[Fixture]:
    """Published and signed."""
    marker = tmp_path / "marker"
    root = tmp_path / "suite"
    root.mkdir()
    (root / "suite.py").write_text(_TELLS.format(marker=str(marker)))
    suite = load_suite(root)
    marker.unlink()
    bus = RedisBus(FixedDoor(server.address()), SystemRuntime())
    wire = await Wire.open(server.address())
    await publish(bus, BATCH, suite, KEY)
    yield Fixture(bus, wire, suite, marker, tmp_path / "elsewhere")
    await bus.aclose()
    wire.close()


async def test_a_signed_bundle_is_the_suite_that_was_published(one: Fixture) -> None:
    """The same digest, so the batch accepts it; fetched twice, it is unpacked once."""
    source = await one.fetched()
    assert not one.marker.exists()
    assert load_suite(source).digest == one.suite.digest
    assert await one.fetched() == source
    assert [path.name for path in source.parent.parent.iterdir()] == [source.parent.name]


async def test_what_is_not_part_of_the_suite_does_not_travel(server: Target, tmp_path: Path) -> None:
    """Ignored files may be secrets, and are not counted in the digest."""
    suite = make_suite(tmp_path / "suite", 'ignore = ["*.env"]\n' + _MINIMAL, notes_DOT_env="A=1")
    bus = RedisBus(FixedDoor(server.address()), SystemRuntime())
    try:
        await publish(bus, BATCH, suite, KEY)
        source = await fetch(bus, BATCH, suite.digest, KEY, tmp_path / "elsewhere")
    finally:
        await bus.aclose()
    assert sorted(path.name for path in source.parent.iterdir()) == ["cases.jsonl", "suite.toml"]


async def test_without_a_signature_nothing_runs(one: Fixture) -> None:
    """Whoever can write to the server can name bytes, and cannot sign them."""
    at = Reference.of(await one.bus.bundle(BATCH))
    await one.bus.put_bundle(BATCH, Reference(at.bundle, at.source, "").as_fields())
    with pytest.raises(InputError, match="not signed with this machine's EVALBUS_BUNDLE_KEY: none of it ran"):
        await one.fetched()
    assert one.untouched


@pytest.mark.parametrize("key", [BundleKey(b"another-0123456789abcd"), None])
async def test_with_another_key_or_none_nothing_runs(one: Fixture, key: BundleKey | None) -> None:
    """One line, that names the variable and shows no key."""
    with pytest.raises(InputError, match="EVALBUS_BUNDLE_KEY") as told:
        await one.fetched(key)
    assert "canary" not in str(told.value) + repr(told.value) + repr(KEY)
    assert one.untouched


async def test_an_altered_file_runs_nothing(one: Fixture) -> None:
    """In the blob, under its old name; or in a blob of its own, with the old signature."""
    at = Reference.of(await one.bus.bundle(BATCH))
    hostile = _archive(("suite.py", b"open('/tmp/x','w')"))
    await one.wire.call("SET", one.bus.keys(BATCH).blob(at.bundle), hostile)
    with pytest.raises(ViolationError, match="holds other bytes"):
        await one.fetched()
    digest = await one.bus.put_blob(BATCH, hostile)
    await one.bus.put_bundle(BATCH, Reference(digest, at.source, at.signature).as_fields())
    with pytest.raises(InputError, match="not signed"):
        await one.fetched()
    assert one.untouched


async def test_another_file_of_a_signed_bundle_is_not_run_as_the_suite(one: Fixture) -> None:
    """The name is signed too: `setup.py` of the very directory is not what was meant."""
    at = Reference.of(await one.bus.bundle(BATCH))
    await one.bus.put_bundle(BATCH, Reference(at.bundle, "setup.py", at.signature).as_fields())
    with pytest.raises(InputError, match="not signed"):
        await one.fetched()
    assert one.untouched


async def test_a_bundle_that_was_signed_for_another_batch_runs_nothing(one: Fixture) -> None:
    """An old bundle with a hole in it, that somebody puts in the new one's place."""
    other = BatchId("other")
    await one.bus.put_bundle(other, await one.bus.bundle(BATCH))
    data = await one.bus.get_blob(BATCH, Reference.of(await one.bus.bundle(BATCH)).bundle)
    await one.bus.put_blob(other, data)
    with pytest.raises(InputError, match="not signed"):
        await one.fetched(batch=other)
    assert one.untouched


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/../../outside"])
async def test_a_path_that_leaves_the_directory_is_refused_although_it_is_signed(one: Fixture, name: str) -> None:
    """The key's holder was careless, or lost the key: still nothing is written outside."""
    digest = await one.bus.put_blob(BATCH, _archive((name, b"x")))
    signature = KEY.sign(BATCH, one.suite.digest, "suite.py", digest)
    await one.bus.put_bundle(BATCH, Reference(digest, "suite.py", signature).as_fields())
    with pytest.raises(InputError, match="is refused"):
        await one.fetched()
    assert one.untouched
    assert not list(one.into.parent.rglob("outside"))


@pytest.mark.parametrize("source", ["../suite.py", "/etc/passwd", "..", ""])
async def test_a_suite_file_outside_of_the_bundle_is_refused_although_it_is_signed(one: Fixture, source: str) -> None:
    """It would be loaded from wherever it points."""
    at = Reference.of(await one.bus.bundle(BATCH))
    signature = KEY.sign(BATCH, one.suite.digest, source, at.bundle)
    await one.bus.put_bundle(BATCH, Reference(at.bundle, source, signature).as_fields())
    with pytest.raises(InputError, match="no file name"):
        await one.fetched()
    assert one.untouched


def test_the_key_is_taken_out_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite's code runs in this process: it could sign bundles for every other machine."""
    monkeypatch.setenv(BUNDLE_KEY, "0123456789abcdef")
    assert take_key() == BundleKey(b"0123456789abcdef")
    assert take_key() is None


def test_a_key_that_can_be_guessed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the remedy."""
    monkeypatch.setenv(BUNDLE_KEY, "secret")
    with pytest.raises(InputError, match=r"fewer than 16 characters.*openssl rand -hex 32"):
        take_key()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A place of the test's own."""
    with Stage.opened(tmp_path) as opened:
        yield opened


@pytest.mark.process
async def test_roles_on_a_machine_without_the_suite_fetch_it_and_finish_the_batch(stage: Stage, server: Target) -> None:
    """`run` with no roles of its own; the others are given the key and nothing else. One without it takes nothing."""
    url, key = unix_url(Path(server.path or "")), {BUNDLE_KEY: "0123456789abcdef0123"}
    suite = stage.suite([case("a"), case("b", target="2")])
    run = ("run", suite, "--url", url, "--batch", "b", "--workers", 0, "--scorers", 0, "--json", "out.json")
    command = stage.start(*run, env=key)
    async with stage.watch("b", url) as batch:
        await eventually(batch.counters, "the batch to be declared")
        elsewhere = {"EVALBUS_HOME": str(stage.root / "elsewhere")}
        refused = stage.start("worker", "--url", url, "--fetch-suite", "--batch", "b", env=elsewhere)
        assert BUNDLE_KEY in (await refused.end()).complaint
        roles = [
            stage.start(role, "--url", url, "--fetch-suite", "--batch", "b", env=elsewhere | key)
            for role in ("worker", "scorer")
        ]
        assert (done := await command.end()).code == 0, done.out + done.err
        for role in roles:
            assert (await role.end()).code == 0  # with the batch that it was started for
    [fetched] = (stage.root / "elsewhere" / "suites").iterdir()
    assert sorted(path.name for path in fetched.iterdir()) == ["agent.py", "cases.jsonl", "suite.toml"]
    assert json.loads((stage.root / "out.json").read_text())["bins"] == {"pass": 1, "fail": 1}


_MINIMAL = 'cases = "cases.jsonl"\n[solver]\ncommand = ["cat"]\n[scorer]\nkind = "exact"\n'


def _archive(*files: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    squeeze = zlib.compressobj(wbits=31)
    return squeeze.compress(buffer.getvalue()) + squeeze.flush()
