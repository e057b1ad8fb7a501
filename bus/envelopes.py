"""Envelopes: the closed identity that a message carries, as flat msgpack that the server's Lua reads itself.

Strings, whole numbers below 2^53 and booleans only. Whatever else a caller hands in (a float, a list, a number that
is too large) is wrapped as a one-element list holding its text: no script takes a list for an argument, so it is
refused as `schema` and stays readable in the history, instead of being turned into something legal on the way.
None and absent are the same: the field is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgpack

from bus.errors import InputError
from bus.types import MAX_INT

__all__ = ["MAX_ENVELOPE", "MAX_PAYLOAD", "SCHEMA", "Head", "check_payload", "decode", "encode"]

SCHEMA = 1
"""The version of the envelope's fields; a script refuses any other."""

MAX_ENVELOPE = 64 * 1024
"""Bytes. An envelope is identity, not payload: whatever is larger is a mistake."""

MAX_PAYLOAD = 256 * 1024
"""Bytes. Larger payloads travel as artifacts, by digest."""


# Without bin types: the server's cmsgpack refuses them. Surrogates pass, so that no text stops a refusal from being
# recorded. One for all envelopes: a packer begins with taking a megabyte for what it will pack.
_packer = msgpack.Packer(use_bin_type=False, unicode_errors="surrogatepass", buf_size=MAX_ENVELOPE)


class Head:
    """What all envelopes of one batch begin with, packed once."""

    __slots__ = ("items", "names")

    def __init__(self, fields: Mapping[str, object]) -> None:
        """`fields`: fewer than 15; `schema` stands before them."""
        flat = {"schema": SCHEMA, **_flattened(fields)}
        self.names = len(flat)
        self.items: bytes = _packer.pack(flat)[_SHORT:]


_SHORT, _LONG = 1, 3  # bytes in front of a map of up to 15 names, and of one that has more
_MANY = 16


def encode(fields: Mapping[str, object], head: Head | None = None) -> bytes:
    """Pack an envelope. Raises InputError above `MAX_ENVELOPE`.

    `head` comes first, and names none of the fields; without one, `schema` comes first, unless the caller names one.
    """
    if head is None:
        packed: bytes = _packer.pack({"schema": SCHEMA, **_flattened(fields)})
    else:  # a map is a number of names and then each with its value: two are joined as they are
        flat = _flattened(fields)
        items = _packer.pack(flat)[_SHORT if len(flat) < _MANY else _LONG :]
        packed = _packer.pack_map_header(head.names + len(flat)) + head.items + items
    if len(packed) > MAX_ENVELOPE:
        raise InputError(
            f"an envelope of {len(packed)} bytes is over the limit of {MAX_ENVELOPE}",
            remedy="send the payload as an artifact",
        )
    return packed


def decode(packed: bytes) -> dict[str, Any]:
    """Unpack what `encode` packed. Raises ValueError for bytes that are no envelope."""
    fields = msgpack.unpackb(packed, raw=False, strict_map_key=True, unicode_errors="surrogatepass")
    if not isinstance(fields, dict):
        raise ValueError("an envelope is a map")
    return fields


def check_payload(payload: str) -> None:
    """Raises InputError for an event above `MAX_PAYLOAD`."""
    size = len(payload.encode("utf-8", "surrogatepass"))
    if size > MAX_PAYLOAD:
        raise InputError(
            f"an event of {size} bytes is over the limit of {MAX_PAYLOAD}", remedy="store it as an artifact"
        )


def _flattened(fields: Mapping[str, object]) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in fields.items():
        if type(value) is str:  # nearly all are
            flat[name] = value
        elif value is not None:
            flat[name] = _flat(value)
    return flat


def _flat(value: object) -> object:
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int) and -MAX_INT <= value <= MAX_INT:
        return value
    return [json.dumps(value, ensure_ascii=False, default=repr)]
