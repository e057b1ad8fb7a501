"""A lab on a real socket, in a thread of its own, so that its clients' loops cannot slow it and may block.

    async with Lab(seed=7, mischief="cut=0.2") as lab:
        …                                    # lab.url, lab.counts, lab.misbehave("tickets", "commit-then-cut")

Stopping is quick: whoever waits in the lab, and be it for a client that never leaves, is let go, and every
connection is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TextIO

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from bus.errors import InputError
from workers.lab.app import make_app, script
from workers.lab.counts import Bill, Counting, Counts
from workers.lab.exchange import TRANSPORT
from workers.lab.mischief import Api
from workers.lab.plan import Plan, read_rates
from workers.lab.service import State
from workers.lab.tickets import Ticket
from workers.listening import listen

__all__ = ["Lab"]

_PATIENCE: Final = 2.0
"""Seconds in which all that is being served must have ended at a stop."""


class _Protocol(H11Protocol):
    """Leaves its transport in the scope: see `workers.lab.exchange`."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        served: ASGIApp = self.app

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            scope[TRANSPORT] = transport
            await served(scope, receive, send)

        self.app = app


class _Server(uvicorn.Server):
    """Starts and stops at once; the original looks at its flag ten times a second, and waits for its clients."""

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event, ready: threading.Event) -> None:
        super().__init__(config)
        self.stopping, self.ready = stopping, ready

    async def main_loop(self) -> None:
        self.ready.set()
        await self.stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.transport.close()
        tasks = set(self.server_state.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=_PATIENCE)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        for task in self.server_state.tasks:
            task.cancel()


class Lab:
    """A lab. Enter it once, with `with` or `async with`; its methods may be called from any thread."""

    def __init__(
        self,
        *,
        seed: int = 0,
        mischief: str | Mapping[str, object] | None = None,
        latency: float = 0.0,
        tokens: int | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        api_key: str | None = None,
        retry_after: float = 1.0,
        log: Path | None = None,
    ) -> None:
        """`mischief`: rates, see `workers.lab.plan`. `latency`: seconds before each token. `tokens`: words of an
        answer that is not scripted; None: a few. `port` 0: a free one. `api_key`: what requests to the model must
        carry. `retry_after`: seconds that a refusal names. `log`: a file that gets a line of JSON a request.

        Raises `InputError`.
        """
        self.seed, self.host, self.port = seed, host, port
        self._counting = Counting(seed)
        plan = Plan(seed, read_rates(mischief), retry_after)
        self._state = State(plan, self._counting, latency, tokens, api_key)
        self._log_path = log
        self._log: TextIO | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def url(self) -> str:
        """Where it listens, without a path: `http://127.0.0.1:8377`. OpenAI's base URL is `{url}/v1`."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return _is_loopback(self.host)

    @property
    def counts(self) -> Counts:
        """What it has really done until now."""
        return self._counting.read()

    def bill(self, request_id: str) -> Bill | None:
        """What a request cost; None: the lab has never seen it."""
        return self._counting.bill(request_id)

    def tickets(self, plane: str = "live") -> tuple[Ticket, ...]:
        """The tickets of a plane."""
        return self._state.tickets.of_plane(plane)

    def misbehave(self, api: str, mischief: str, times: int = 1) -> None:
        """The next `times` requests of an interface meet it (`none`: nothing); raises `ValueError`."""
        script(self._state, mischief, Api(api), times)

    # --- life ---

    def start(self) -> Self:
        """Listen; raises `InputError` when it can't."""
        listener = listen(self.host, self.port, backlog=1024)
        self.port = int(listener.getsockname()[1])
        try:
            if self._log_path is not None:
                self._log = _append(self._log_path)
        except InputError:
            listener.close()
            raise
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(listener, ready), name="evalbus-lab", daemon=True)
        self._thread.start()
        ready.wait()
        return self

    def stop(self) -> None:
        """Let go of everybody and close."""
        if self._thread is None or self._loop is None:
            return
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self._state.stopping.set)
        self._thread.join()
        self._thread = None
        if self._log is not None:
            self._write({"event": "lab.stopped", **self.counts.as_json()})
            self._log.close()
            self._log = None

    def _run(self, listener: socket.socket, ready: threading.Event) -> None:
        try:
            with asyncio.Runner() as runner:
                self._loop = runner.get_loop()
                runner.run(self._serve(listener, ready))
        finally:
            listener.close()
            ready.set()

    async def _serve(self, listener: socket.socket, ready: threading.Event) -> None:
        app = make_app(
            self._state,
            log=self._write if self._log is not None else None,
            loopback_only=self.is_loopback,
        )
        config = uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=60,
        )
        await _Server(config, self._state.stopping, ready).serve(sockets=[listener])

    def _write(self, entry: dict[str, object]) -> None:
        assert self._log is not None
        self._log.write(json.dumps({"time": round(time.time(), 3), **entry}) + "\n")
        self._log.flush()

    def __enter__(self) -> Self:
        """As `start`."""
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """As `stop`."""
        self.stop()

    async def __aenter__(self) -> Self:
        """As `start`, without blocking the loop."""
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """As `stop`, without blocking the loop."""
        await asyncio.to_thread(self.stop)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _append(path: Path) -> TextIO:
    try:
        return path.open("a", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", file=path) from None
