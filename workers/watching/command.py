"""`evalbus top` and `evalbus serve`."""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bus.cluster import ServerBus
from bus.errors import InputError
from bus.server_url import parse_url
from bus.types import BatchId
from workers.terminals import can_redraw
from workers.watching.looking import Watcher

__all__ = ["ServeOptions", "check_terminal", "look_on", "serve_batches", "server_name"]

_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - asked for by name, and with a token


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What the command line says."""

    batch: BatchId | None
    host: str
    port: int
    token: str | None
    server: str
    """The data server, for the pages' heads; without its password."""
    archive: Path | None = None
    """Where histories were archived while their batches ran."""


def server_name(url: str | None) -> str:
    """How the data server is called on screens: its URL without the password, or that it is our own."""
    return "private server" if url is None else parse_url(url).redacted


def check_terminal() -> None:
    """Before anything is read. Raises InputError where there is no terminal to draw on: standard error is drawn on."""
    if not all(can_redraw(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise InputError("top needs a terminal", remedy="elsewhere: evalbus status")


async def look_on(bus: ServerBus, batch: BatchId | None, server: str, archive: Path | None) -> None:
    """Draw until the user has seen enough; `archive`: see `ServeOptions`. Raises InputError for an unknown batch."""
    from workers.watching.top import Top  # noqa: PLC0415 - the web server need not load a terminal's toolkit

    watcher = Watcher(bus, archive)
    if batch is not None:
        await watcher.check(batch)
    await Top(watcher, batch=batch, server=server).run_async()


async def serve_batches(bus: ServerBus, options: ServeOptions) -> None:
    """Print the address as the first line, and serve until SIGINT or SIGTERM. Raises InputError."""
    from workers.listening import listen  # noqa: PLC0415
    from workers.serving import serve  # noqa: PLC0415
    from workers.watching.guard import Guard, Keyring, is_loopback  # noqa: PLC0415 - likewise
    from workers.watching.pages import Site, batch_path  # noqa: PLC0415
    from workers.watching.reports import Reports  # noqa: PLC0415
    from workers.watching.web import Web  # noqa: PLC0415

    watcher = Watcher(bus, options.archive)
    if options.batch is not None:
        await watcher.check(options.batch)
    made_up = options.token is None and not is_loopback(options.host)
    token = secrets.token_urlsafe(24) if made_up else options.token
    if token is not None:
        Keyring.of(token, options.port)  # a bad one is said before a port is taken
    listener = listen(options.host, options.port)
    with listener, tempfile.TemporaryDirectory(prefix="evalbus-reports-") as directory, _until_told() as stopping:
        port = int(listener.getsockname()[1])
        keyring = None if token is None else Keyring.of(token, port)
        web = Web(watcher, Site(options.server, bus.plane.value), Reports(bus, Path(directory), options.archive))
        path = "/" if options.batch is None else batch_path(options.batch)
        url = f"http://{_shown(options.host)}:{port}{path}"
        print(f"{url}?token={token}" if made_up else url, flush=True)
        if made_up:
            print(
                "evalbus: whoever has this address can look; the token is not shown again", file=sys.stderr, flush=True
            )
        await serve(Guard(web.app(), host=options.host, keyring=keyring), listener, stopping, web.end)


def _shown(host: str) -> str:
    """An address that works elsewhere too."""
    if host in _WILDCARDS:
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


@contextmanager
def _until_told() -> Iterator[asyncio.Event]:
    """An event that the signals set which ask a process to end."""
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.set)
    try:
        yield told
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
