"""What a measurement reads: the server's own counts, and the processor time and memory of the other processes.

Wall time says what a machine could do while it did other things too. Processor time and counts hold on a loaded machine
as well, so they stand beside every rate.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from bus.info import parse_info
from bus.wire import Wire

__all__ = ["ServerCounts", "cpu_seconds", "resident_memory", "server_counts"]

_OWN = ("cmdstat_info", "cmdstat_monitor")
"""What whoever measures asks, and nobody else does often."""

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True, slots=True)
class ServerCounts:
    """What a server has counted since it started, and what it holds. Bytes and seconds."""

    commands: int
    """Those inside scripts included."""
    scripts: int
    """Calls of scripts."""
    reads: int
    """Times that it read from a connection: what a client sends in one write is read once."""
    bytes_in: int
    bytes_out: int
    cpu_s: float
    memory: int
    """Of the data; without the server itself and what its clients' buffers hold."""
    log_bytes: int
    """Of the append-only file."""

    def __sub__(self, before: ServerCounts) -> ServerCounts:
        """What has been added since."""
        return ServerCounts(
            self.commands - before.commands,
            self.scripts - before.scripts,
            self.reads - before.reads,
            self.bytes_in - before.bytes_in,
            self.bytes_out - before.bytes_out,
            self.cpu_s - before.cpu_s,
            self.memory - before.memory,
            self.log_bytes - before.log_bytes,
        )


async def server_counts(wire: Wire) -> ServerCounts:
    """One look. Raises ReplyError, ServerUnreachable."""
    reply: bytes = await wire.call("INFO", "everything")
    info = parse_info(reply)
    calls = {
        name: int(value.partition("calls=")[2].partition(",")[0])
        for name, value in info.items()
        if name.startswith("cmdstat_")
    }
    return ServerCounts(
        commands=sum(count for name, count in calls.items() if name not in _OWN),
        scripts=calls.get("cmdstat_evalsha", 0) + calls.get("cmdstat_eval", 0) + calls.get("cmdstat_fcall", 0),
        reads=int(info["total_reads_processed"]),
        bytes_in=int(info["total_net_input_bytes"]),
        bytes_out=int(info["total_net_output_bytes"]),
        cpu_s=float(info["used_cpu_user"]) + float(info["used_cpu_sys"]),
        memory=int(info["used_memory_dataset"]),
        log_bytes=int(info.get("aof_current_size", 0)),
    )


def cpu_seconds(pid: int) -> float | None:
    """User and system time of a process so far; None where it is gone, or the system has no /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # its name may hold blanks and parentheses
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_memory(pid: int) -> int | None:
    """Bytes that a process holds in memory now; None as above."""
    return _status(pid, "VmRSS:")


def _status(pid: int, name: str) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return None
