"""`evalbus export`: the history as a file, written as it is read, and only under its name when it is whole."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from bus.errors import InputError
from bus.history import export
from bus.redis_bus import RedisBus
from bus.snapshot import Snapshot
from bus.types import BatchId
from workers.files import check_writable
from workers.job import no_such_batch

__all__ = ["export_batch"]


async def export_batch(bus: RedisBus, batch: BatchId, file: Path) -> int:
    """Write the export; answers the number of decisions in it. Raises InputError."""
    to_stdout = str(file) == "-"
    if not to_stdout:
        check_writable(file)
    info = await bus.info(batch)
    if info is None:
        raise InputError(await no_such_batch(bus, batch))
    snapshot = None
    if info.status.ended:
        snapshot = Snapshot.from_rows(await bus.rows(batch, await bus.run_ids(batch)), info.spec)
    text = export(bus.link, bus.plane, batch, info, snapshot)
    count = 0
    if to_stdout:
        async for line in text:
            sys.stdout.write(line)
            count += 1
        sys.stdout.flush()
        return count - 2
    handle, name = await asyncio.to_thread(tempfile.mkstemp, dir=file.parent or None, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as out:
            async for line in text:
                out.write(line)
                count += 1
            out.flush()
            os.fsync(out.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return count - 2
