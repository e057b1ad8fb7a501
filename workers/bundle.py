"""Suite bundles: how a worker on another machine gets the suite, and why it may run it.

Whoever can write to the server must not thereby run code on the workers. So a bundle is the suite's directory as bytes,
and beside it a signature under a key that the server never sees: HMAC-SHA256 with `EVALBUS_BUNDLE_KEY` over the batch,
the suite's digest, the name of its file and the digest of the bytes. A worker (`--fetch-suite`) compares before it
unpacks, and unpacks as carefully as a sealed workspace; what it loads must have the digest that the batch recorded.

    evalbus run SUITE          EVALBUS_BUNDLE_KEY is set: packs, signs, stores
    evalbus worker --fetch-suite    the same key: compares, unpacks, compares, serves
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from bus.errors import InputError
from bus.types import BatchId, Digest
from workers.archives import pack, unpack
from workers.processes.machine import OF_ITS_OWN, fault_of, machine_error
from workers.redaction import hide
from workers.secret_files import FILE, secret
from workers.suite import Suite
from workers.trees import TreeError

__all__ = ["BUNDLE_KEY", "BundleKey", "Bundles", "Reference", "fetch", "publish", "take_key"]

BUNDLE_KEY: Final = "EVALBUS_BUNDLE_KEY"
"""The variable that holds the key (or a file: `workers.secret_files`). Whoever has it decides what the workers run."""

_SHORTEST: Final = 16  # characters: a shorter key can be found by trying


@dataclass(frozen=True, slots=True)
class BundleKey:
    """The shared key; its text shows nothing of it."""

    value: bytes

    def __repr__(self) -> str:
        """Not the key."""
        return "BundleKey(…)"

    def sign(self, batch: BatchId, suite: Digest, source: str, bundle: Digest) -> str:
        """The signature, in hex. Bound to the batch: a bundle that was signed for another one proves nothing here."""
        told = json.dumps(["evalbus-bundle 1", batch, suite, source, bundle], ensure_ascii=False)
        return hmac.new(self.value, told.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class Reference:
    """What stands beside a batch: which bytes are its suite's bundle, which file in them is the suite, who says so."""

    bundle: Digest
    source: str
    signature: str

    def as_fields(self) -> dict[str, str]:
        """As the server keeps it."""
        return {"bundle": self.bundle, "source": self.source, "signature": self.signature}

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> Reference:
        """What the server kept; what is missing is empty, and matches no signature."""
        return cls(Digest(fields.get("bundle", "")), fields.get("source", ""), fields.get("signature", ""))


class Bundles(Protocol):
    """What of a bus bundles need."""

    async def put_blob(self, batch: BatchId, data: bytes) -> Digest:
        """Store bytes under their digest."""

    async def get_blob(self, batch: BatchId, digest: Digest) -> bytes:
        """Fetch and rehash."""

    async def put_bundle(self, batch: BatchId, fields: Mapping[str, str]) -> None:
        """Say which bundle is the batch's."""

    async def bundle(self, batch: BatchId) -> Mapping[str, str]:
        """Which bundle is the batch's; empty when none was published."""


def take_key() -> BundleKey | None:
    """The key, out of the environment: what the suite's code runs in later has none to sign with.

    None when there is none. Raises `InputError` for one that is too short, and for a file that cannot be read.
    """
    text = secret(BUNDLE_KEY)
    os.environ.pop(BUNDLE_KEY, "")
    os.environ.pop(BUNDLE_KEY + FILE, "")
    if not text:
        return None
    hide(text)
    if len(text) < _SHORTEST:
        raise InputError(f"{BUNDLE_KEY} has fewer than {_SHORTEST} characters", remedy="make one: openssl rand -hex 32")
    return BundleKey(text.encode("utf-8", "surrogateescape"))


async def publish(bus: Bundles, batch: BatchId, suite: Suite, key: BundleKey) -> None:
    """Pack the suite's directory, store it, sign it. Raises `InputError`."""
    try:
        packed = pack(suite.root, suite.place.not_counted)
    except TreeError as error:
        raise InputError(f"the suite cannot be packed: {error}", file=suite.source) from error
    bundle, source = await bus.put_blob(batch, packed.data), suite.source.name
    if suite.source.is_dir() or suite.source.resolve().parent != suite.root:
        raise InputError("the suite file does not stand in the suite's directory", file=suite.source)
    signature = key.sign(batch, suite.digest, source, bundle)
    await bus.put_bundle(batch, Reference(bundle, source, signature).as_fields())


async def fetch(bus: Bundles, batch: BatchId, suite: Digest, key: BundleKey | None, into: Path) -> Path:
    """The suite file of a batch's bundle, unpacked under `into`. Nothing of it has run.

    `suite`: the digest that the batch recorded; the caller compares that of what it loads. Raises `InputError` when the
    bundle is missing, not signed, signed by another key, altered, or no tree; then nothing was left on the disk.
    """
    if key is None:
        raise InputError(f"--fetch-suite takes the key that bundles are signed with: set {BUNDLE_KEY}")
    fields = await bus.bundle(batch)
    if not fields:
        raise InputError(
            f"batch {batch!r} has no suite bundle",
            remedy=f"set {BUNDLE_KEY} for `evalbus run` too, or give a copy: --suite DIR",
        )
    at = Reference.of(fields)
    if not hmac.compare_digest(key.sign(batch, suite, at.source, at.bundle), at.signature):
        raise InputError(
            f"the suite bundle of batch {batch!r} is not signed with this machine's {BUNDLE_KEY}: none of it ran",
            remedy="set the key that the batch was made with, or give a copy: --suite DIR",
        )
    # Signed, so the name is what a suite file was called; yet it is only ever a name, never a path.
    if Path(at.source).name != at.source or at.source in ("", ".", ".."):
        raise InputError(f"the suite bundle of batch {batch!r} names {at.source!r}, which is no file name")
    data = await bus.get_blob(batch, at.bundle)
    place = into / at.bundle
    if not place.exists():
        _unpack(data, place, batch)
    return place / at.source


def _unpack(data: bytes, place: Path, batch: BatchId) -> None:
    # Beside its place first: two workers of a machine may fetch at once, and one may be killed in the middle.
    half = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        unpack(data, half)
        half.replace(place)
    except TreeError as error:
        if (fault := fault_of(error, OF_ITS_OWN)) is not None:
            raise fault from error
        raise InputError(f"the suite bundle of batch {batch!r} is refused: {error}") from error
    except OSError as error:
        if not place.exists():
            raise machine_error(f"{place}: {error.strerror}") from error
    finally:
        shutil.rmtree(half, ignore_errors=True)
