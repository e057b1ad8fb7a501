"""Streams and groups: one adapter between the server's reply shapes and `Entry`.

Everything is read as RESP2 through `Wire`, so there is one shape. What is odd about the replies is handled here and
nowhere else: an entry that was deleted while it was pending comes back without fields; a claim of idle entries may
return nothing and still not be finished; a group may be gone, which is not the same as empty.
"""

from __future__ import annotations

from collections.abc import Mapping

from bus.port import Entry, Group
from bus.replies import hash_of
from bus.types import BatchId, EntryId, RunId
from bus.wire import Reply

__all__ = ["claimed", "delivered", "fields_of"]


def fields_of(flat: Reply) -> dict[str, str]:
    """`[name, value, …]` as a dict; empty for an entry whose content is gone."""
    return hash_of(flat, "replace") if flat else {}


def _entry(batch: BatchId, group: Group, raw: Reply) -> Entry:
    fields = fields_of(raw[1])
    return Entry(batch=batch, group=group, id=EntryId(raw[0].decode()), run=RunId(fields.get("run", "")), fields=fields)


def delivered(reply: Reply, group: Group, batch_of: Mapping[str, BatchId]) -> list[Entry]:
    """The entries of an XREADGROUP reply; `batch_of` tells which batch a stream key belongs to."""
    return [_entry(batch_of[stream.decode()], group, raw) for stream, entries in reply or [] for raw in entries]


def claimed(reply: Reply, batch: BatchId, group: Group) -> list[Entry]:
    """The entries of an XAUTOCLAIM reply; those that were deleted meanwhile the server has dropped itself."""
    return [_entry(batch, group, raw) for raw in reply[1] if raw]
