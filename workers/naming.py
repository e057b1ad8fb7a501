"""Names of batches and of consumers: what they are called at the server, in the log, and in paths.

A batch's name stands in keys, and a consumer's in a path and in values that people read: letters, digits and little
else. A machine's own name may be anything, also nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
from pathlib import Path

from bus.errors import BatchMissing, InputError
from bus.types import BatchId, ConsumerId
from workers.brief import brief
from workers.histories.history_files import SUFFIXES

__all__ = ["batch_name", "checked_name", "fleet_place", "made_up_name", "new_batch_name", "this_host", "this_machine"]

_LONGEST = 200
_BOOT = Path("/proc/sys/kernel/random/boot_id")  # Linux only
_MACHINE = 12  # hex digits of a digest
_SHOWN = 60  # characters of one that is none: enough to recognise it
_FIRST = "it begins with a letter, a digit or '_'"
_BATCH_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def batch_name(text: str) -> BatchId:
    """The name of a batch that may be there. Raises BatchMissing for one that cannot stand in a key, or in a path.

    Older ones may be called what no new one is: whatever is there can be shown, exported and pruned.
    """
    if not text or len(text) > _LONGEST or not set(text) <= _BATCH_LETTERS:
        raise _is_none(text, f"letters, digits, '.', '_' and '-', at most {_LONGEST}")
    if text in (".", ".."):
        raise _is_none(text, _FIRST)
    return BatchId(text)


def new_batch_name(text: str) -> BatchId:
    """One by which a batch is to be made, or gone on with. Raises BatchMissing, too, for one that means something else.

    `-x` would be an option, `..` another directory of logs, and `x.jsonl` a file to `replay` and `gate`.
    """
    name = batch_name(text)
    if name[0] in "-.":
        raise _is_none(text, _FIRST)
    if name.endswith(SUFFIXES):
        raise _is_none(text, f"commands take {', '.join(SUFFIXES)} for files")
    return name


def _is_none(text: str, remedy: str) -> BatchMissing:
    return BatchMissing(text, f"{brief(text, _SHOWN)!r} cannot name a batch", remedy=remedy)


def this_host() -> str:
    """This machine's name, fit for a file's; `host` where it has none."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", socket.gethostname()).strip(".-") or "host"


def this_machine() -> str:
    """What tells this machine from others: alike for all its processes, in containers too, until it is started anew.

    What runs on one kernel shares most of what breaks (a disk, a way to the network), whatever its hosts are called.
    Where the system does not say which kernel it is, the machine's name does.
    """
    try:
        boot = _BOOT.read_text(encoding="ascii")
    except (OSError, ValueError):
        boot = this_host()
    return hashlib.sha256(boot.strip().encode()).hexdigest()[:_MACHINE]


def made_up_name(role: str) -> ConsumerId:
    """A name that nobody else has."""
    return ConsumerId(f"{role}-{this_host()}-{os.getpid()}-{secrets.token_hex(3)}")


def fleet_place() -> str:
    """What the names of one fleet's processes have in common, and those of no other fleet.

    Containers may have one host's name, and the same number for their first process.
    """
    return f"{this_host()}-{os.getpid()}-{secrets.token_hex(3)}"


def checked_name(name: str) -> ConsumerId:
    """A name that was given. Raises InputError for one that is none."""
    if not re.fullmatch(rf"[A-Za-z0-9_:-][A-Za-z0-9._:-]{{0,{_LONGEST - 1}}}", name):
        raise InputError(
            f"--name: {brief(name, _SHOWN)!r} cannot name a process",
            remedy=f"letters, digits, '.', '_', '-' and ':', no '.' first, at most {_LONGEST}",
        )
    return ConsumerId(name)
