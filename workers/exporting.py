"""`evalbus export`: the history as a file, written as it is read, and only under its name when it is whole."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bus.errors import InputError
from bus.history import export
from bus.redis_bus import RedisBus
from bus.snapshot import Snapshot
from bus.types import BatchId
from workers.files import check_writable, writing_whole
from workers.job import info_of

__all__ = ["export_batch"]


async def export_batch(bus: RedisBus, batch: BatchId, file: Path) -> int:
    """Write the export; answers the number of decisions in it. Raises InputError."""
    to_stdout = str(file) == "-"
    if not to_stdout:
        check_writable(file)
    info = await info_of(bus, batch)
    snapshot = None
    if info.status.ended:
        snapshot = Snapshot.from_rows(await bus.rows(batch, await bus.run_ids(batch)), info.spec)
    text = export(bus.link, bus.plane, batch, info, snapshot)
    count = 0
    with _standard_output() if to_stdout else writing_whole(file) as out:
        async for line in text:
            out.write(line.encode())
            count += 1
    return count - 2


@contextlib.contextmanager
def _standard_output() -> Iterator[BinaryIO]:
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError:  # whoever read it has seen enough
        raise
    except OSError as error:
        raise InputError(f"standard output cannot be written: {error.strerror}") from error
