"""Texts that other clients presented. A script takes any bytes for text; ours sends UTF-8 and nothing else.

Whatever it was, a history must be readable to its end. Half of a surrogate pair stands as that half. Other bytes that
are no UTF-8 stand each as a character of its own, from U+DC80 on (Python's `surrogateescape`). An export spells both
out as JSON does, `\\ud83d`.
"""

from __future__ import annotations

import codecs
from typing import Any, Final

import msgpack

__all__ = ["AS_PRESENTED", "text_of", "unpacked"]

AS_PRESENTED: Final = "evalbus-as-presented"
"""How a decoder of UTF-8 is told to do so, as its `errors`: of many texts that it reads at once, none spoils others."""


def _as_presented(error: UnicodeError) -> tuple[str | bytes, int]:
    try:
        return codecs.lookup_error("surrogatepass")(error)
    except UnicodeError:
        return codecs.lookup_error("surrogateescape")(error)


codecs.register_error(AS_PRESENTED, _as_presented)


def text_of(raw: bytes) -> str:
    """What was presented as text. Raises nothing."""
    return raw.decode("utf-8", AS_PRESENTED)


def unpacked(packed: bytes) -> Any:  # noqa: ANN401 - whatever it is
    """What was packed as msgpack, its texts likewise. Raises ValueError for what is none."""
    return msgpack.unpackb(packed, raw=False, strict_map_key=False, unicode_errors=AS_PRESENTED)
