"""A server of `evalbus serve` in the test's own loop, which shows one batch of a real server."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from bus.redis_bus import RedisBus
from bus.target import Target
from tests.batches import Batch, FixedDoor
from tests.waiting import soon
from workers.listening import listen
from workers.runtime import SystemRuntime
from workers.serving import serve
from workers.watching.guard import Guard, Keyring
from workers.watching.looking import Watcher
from workers.watching.pages import Site
from workers.watching.reports import Reports
from workers.watching.web import Web


@dataclass(slots=True)
class House:
    """A web server in this loop, and the batch that it shows."""

    url: str
    web: Web
    batch: Batch
    client: httpx.AsyncClient
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def news(self, path: str, last: str = "") -> AsyncGenerator[dict[str, Any]]:
        """The events of a stream, each with its id."""
        headers = {"last-event-id": last} if last else {}
        async with self.client.stream("GET", path, headers=headers) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            event: dict[str, Any] = {}
            async for line in stream.aiter_lines():
                name, _, value = line.partition(": ")
                if not line and event:
                    yield event
                    event = {}
                elif name:
                    event[name] = json.loads(value) if name == "data" and value.startswith("{") else value


@contextlib.asynccontextmanager
async def open_house(
    target: Target,
    directory: Path,
    *,
    runs: int = 3,
    patience: float = 5.0,
    token: str | None = None,
    archive: Path | None = None,
    **spec: object,
) -> AsyncIterator[House]:
    """Serve a batch `b` of `runs` admitted runs; at the end everybody is let go."""
    batch = await Batch.open(target.address(), runs=runs, **spec)  # type: ignore[arg-type]
    bus = RedisBus(FixedDoor(target.address()), SystemRuntime(), patience=patience)
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    web = Web(Watcher(bus, archive), Site("redis://there", "live"), Reports(bus, directory, archive))
    guard = Guard(web.app(), host="127.0.0.1", keyring=None if token is None else Keyring.of(token, port))
    url = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        house = House(url, web, batch, client)
        serving = asyncio.create_task(serve(guard, listener, house.stopping, web.end))
        try:
            await batch.admit()
            yield house
        finally:
            house.stopping.set()
            await soon(serving)
            await bus.aclose()
            await batch.aclose()
            listener.close()
