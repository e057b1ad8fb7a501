"""What is left of a batch that was pruned: in the registry, behind its name, where its history went.

The name stays taken, since another batch under it would pass for the one whose number was quoted. And whoever comes
late, a person or a worker that slept, is told where the proof of that number is.

    pruning {"file": …}        the batch is gone, and keys of it may still be there
    pruned {"file": …}         nothing of it is there
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from shlex import quote

from bus.errors import InputError
from bus.types import BatchId, Digest

__all__ = ["PrunedError", "Tombstone"]

_LEFT, _GONE = "pruning", "pruned"


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Where a pruned batch's archive is, and by what it is known."""

    file: str
    """The archive's absolute path, on the machine that pruned."""
    entries: int
    """Decisions in it."""
    head: Digest
    """Of its chain."""
    snapshot_id: str
    """Empty for a batch that had not ended; only one that was imported goes like that."""
    status: str
    """What the batch had come to."""
    cleared: bool = False
    """No key of the batch is left."""

    @classmethod
    def read(cls, value: str) -> Tombstone | None:
        """From what the registry holds of a batch; None for one that was not pruned."""
        word, _, content = value.partition(" ")
        if word not in (_LEFT, _GONE):
            return None
        return cls(**json.loads(content), cleared=word == _GONE)

    def text(self) -> str:
        """As it stands in the registry. The same tombstone is always the same text: scripts compare it."""
        content = asdict(self)
        del content["cleared"]
        return f"{_GONE if self.cleared else _LEFT} {json.dumps(content, sort_keys=True, separators=(',', ':'))}"

    def line(self, batch: BatchId) -> str:
        """For whoever asks for the batch."""
        return f"batch {batch!r} was pruned: its history is in {self.file} ({self.proof})"

    @property
    def proof(self) -> str:
        """By what the archive is known: `head …, snapshot …`."""
        return f"head {self.head}, " + (f"snapshot {self.snapshot_id}" if self.snapshot_id else "no snapshot")


class PrunedError(InputError):
    """A batch that was asked for has gone from the server."""

    def __init__(self, batch: BatchId, tombstone: Tombstone, *, of: BatchId | None = None, rest: bool = False) -> None:
        """Which, and where its history is. `of`: the batch that it was a partition of; `rest`: others are there yet."""
        self.batch, self.tombstone = batch, tombstone
        if of is None:
            super().__init__(tombstone.line(batch), remedy=f"to look at it: evalbus import {quote(tombstone.file)}")
        elif rest:
            problem = f"batch {of!r} was pruned, in part: the history of {batch} is in {tombstone.file}"
            super().__init__(problem, remedy=f"to go on: evalbus prune {of}")
        else:
            # A name that stands for the files of all partitions: see `workers.histories.history_files.files_of`.
            file = tombstone.file.removesuffix(f"{batch}.jsonl.zst") + f"{of}.jsonl.zst"
            problem = f"batch {of!r} was pruned: its history is in {file}, a file for each partition"
            super().__init__(problem, remedy=f"to look at it: evalbus import {quote(file)}")
