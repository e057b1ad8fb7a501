"""Serving, and stopping at once.

The original server looks ten times a second whether it is to stop, takes the signals for itself, and waits for its
clients; a browser that follows a stream never leaves. Here an event stops it, every stream is ended, and whoever is
left has two seconds. Nor does it mind a request that never becomes whole; here that has ten seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["serve"]

_PATIENCE: Final = 2.0
_WHOLE: Final = 10.0
"""Seconds from a connection, or a request's first byte, until its head is whole."""


async def serve(app: ASGIApp, listener: socket.socket, stopping: asyncio.Event, ending: Callable[[], None]) -> None:
    """Answer until `stopping` is set; then `ending` ends what would go on for ever."""
    config = uvicorn.Config(
        app,
        http=_Impatient,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,  # a token may stand in an address
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=30,
    )
    # What is no HTTP is answered with 400; a line each on standard error would be for whoever sends it to fill.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    await _Server(config, stopping, ending).serve(sockets=[listener])


class _Impatient(H11Protocol):
    """Gives up a request whose head does not come; bytes that drip in give it no more time."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer = self.loop.call_later(_WHOLE, transport.close)

    def data_received(self, data: bytes) -> None:
        if self._timer is None and not self._answering:
            self._timer = self.loop.call_later(_WHOLE, self.transport.close)
        super().data_received(data)
        if self._answering:
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event, ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._stopping, self._ending = stopping, ending

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """They are the command's."""
        yield

    async def main_loop(self) -> None:
        await self._stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        self._ending()
        tasks = set(self.server_state.tasks)
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if tasks:
            await asyncio.wait(tasks, timeout=_PATIENCE)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        for task in list(self.server_state.tasks):
            task.cancel()
