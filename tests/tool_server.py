"""A tool behind HTTP, run by a real server in the test's own loop: what it really did is counted here.

async with ToolServer() as tool:
    tool.plan = ["cut"]                  # what it does with the next requests; then it behaves
    tool.made, tool.undone               # effects by idempotency key
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

__all__ = ["ToolServer", "served"]


@contextlib.asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[int]:
    """Serve an application on a free port, here."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
        serving = asyncio.create_task(server._serve(sockets=[listening]))
        while not server.started:
            await asyncio.sleep(0.001)
        try:
            yield int(listening.getsockname()[1])
        finally:
            server.should_exit = True
            await serving


@dataclass(slots=True)
class ToolServer:
    """See the module's text. Plans: `cut` (done, and the connection dies), `500` (done), `mute` (done, no echo),
    `bare` (done, and only the last part of the key comes back),
    `refuse` (422, nothing done), `hold` (done when `gate` is set), `late` (likewise, and only then done).
    """

    plan: list[str] = field(default_factory=list)
    made: Counter[str] = field(default_factory=Counter)
    """Idempotency key → effects."""
    undone: list[str] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Headers and body of each."""
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    _open: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    _port: int = 0

    async def __aenter__(self) -> Self:
        """Listen."""
        app = Starlette(
            routes=[Route("/book", self._book, methods=["POST"]), Route("/cancel", self._cancel, methods=["POST"])]
        )
        self._port = await self._open.enter_async_context(served(app))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        self.gate.set()
        await self._open.aclose()

    def url(self, path: str = "book") -> str:
        """Of one of its tools: `book`, `cancel`."""
        return f"http://127.0.0.1:{self._port}/{path}"

    async def _book(self, request: Request) -> Response:
        key, body = request.headers.get("idempotency-key", ""), await request.json()
        self.requests.append({"headers": dict(request.headers), "body": body})
        if key in self.undone:
            return PlainTextResponse("undone before it came", 409, {"Idempotency-Key": key})
        plan = self.plan.pop(0) if self.plan else ""
        if plan == "refuse":
            return PlainTextResponse("sold out\nreally", 422)
        if plan == "late":
            await self.gate.wait()
        self.made[key] += 1
        match plan:
            case "hold":
                await self.gate.wait()
            case "cut":
                return _Cut()
            case "500":
                return PlainTextResponse("oops", 500, {"Idempotency-Key": key})
            case "mute":
                return PlainTextResponse("booked")
            case "bare":
                return PlainTextResponse("booked", headers={"Idempotency-Key": key.rpartition(":")[2]})
        return PlainTextResponse(f"booked {json.dumps(body, sort_keys=True)}", headers={"Idempotency-Key": key})

    async def _cancel(self, request: Request) -> Response:
        key, undoes = request.headers.get("idempotency-key", ""), request.headers.get("evalbus-undoes", "")
        self.requests.append({"headers": dict(request.headers), "body": await request.json()})
        plan = self.plan.pop(0) if self.plan else ""
        if plan == "cut":
            return _Cut()
        self.undone.append(undoes)
        return PlainTextResponse("cancelled", headers={"Idempotency-Key": key})


class _Cut(Response):
    """Promises a body, and hangs up before it."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100")]})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        raise ConnectionError("cut")
