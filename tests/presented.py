"""Calls of scripts as bytes, for tests that present what no client of ours would."""

from __future__ import annotations

from collections.abc import Sequence

from bus.calling import Command, words_of
from bus.scripts import Script

__all__ = ["evalsha"]


def evalsha(target: Script, keys: Sequence[str], argv: Sequence[str | bytes]) -> list[str | bytes | int]:
    """One command as it is sent. `keys`: in the header's order."""
    if not target.own_keys:
        return ["EVALSHA", target.sha, len(keys), *keys, *argv]
    named = dict(zip(target.keys, keys, strict=True))
    own = Command(tuple(named[name] for name in target.own_keys), tuple(argv))
    return ["EVALSHA", target.sha, *words_of([named[name] for name in target.shared_keys], [own])]
