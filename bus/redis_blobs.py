"""Content-addressed bytes of a batch: in the server or, the large ones, in the artifact store; and its bundle."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from bus.envelopes import MAX_PAYLOAD
from bus.errors import ArtifactMissing, ArtifactNotFound, InputError, ViolationError
from bus.keys import registry
from bus.redis_steps import Steps
from bus.replies import hash_of
from bus.tombstones import Tombstone
from bus.types import BatchId, Digest

__all__ = ["Blobs"]


class Blobs(Steps):
    """See the module's text."""

    async def put_blob(self, batch: BatchId, data: bytes) -> Digest:
        """Store bytes under their own digest: in the server up to `MAX_PAYLOAD`, above it in the artifact store."""
        digest = Digest(hashlib.sha256(data).hexdigest())
        if len(data) <= MAX_PAYLOAD:
            key = self.keys(batch).blob(digest)
            _, left = await self._link.commands([("SET", key, data), ("HGET", registry(self.plane, self.shard), batch)])
            if left is not None and Tombstone.read(left.decode()):
                # Pruned while its worker slept: nobody would ever remove these bytes. The step that names them says so.
                await self._link.command("SET", key, b"", "PX", 1)
        elif self._artifacts is not None:
            await self._artifacts.put(digest, data)
        else:
            raise InputError(
                f"an artifact of {len(data)} bytes is over the server's limit of {MAX_PAYLOAD}",
                remedy="name a store that all machines reach: --artifacts DIR, or s3://bucket/prefix",
            )
        return digest

    async def get_blob(self, batch: BatchId, digest: Digest) -> bytes:
        """Fetch and rehash.

        Raises `ViolationError` when the bytes were read and are not those that were named; `ArtifactMissing`, and
        `ArtifactUnreachable`, when they were not read.
        """
        data: bytes | None = await self._link.command("GET", self.keys(batch).blob(digest))
        if data is None and self._artifacts is not None:
            data = await self._artifacts.get(digest)
        if data is None:
            remedy = "name the store that the workers write to: --artifacts DIR, or s3://bucket/prefix"
            if self._artifacts is None:
                raise ArtifactMissing(f"no artifact {digest}", remedy=remedy)
            raise ArtifactNotFound(f"no artifact {digest} in {self._artifacts.name}", remedy=remedy)
        if hashlib.sha256(data).hexdigest() != digest:
            raise ViolationError(f"the artifact {digest} holds other bytes than its name says")
        return data

    async def put_bundle(self, batch: BatchId, fields: Mapping[str, str]) -> None:
        """Say which bundle is the batch's suite; see `workers.bundle`."""
        await self._link.command("HSET", self.keys(batch).bundle, *(word for pair in fields.items() for word in pair))

    async def bundle(self, batch: BatchId) -> Mapping[str, str]:
        """Which bundle is the batch's suite; empty when none was published."""
        return hash_of(await self._link.command("HGETALL", self.keys(batch).bundle))
