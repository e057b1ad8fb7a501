"""The way in for clients that speak OpenAI's API by themselves: an endpoint on this machine, of the worker's.

    client = OpenAI(base_url=run.model.base_url, api_key=run.model.api_key)

What they ask is asked by `run.model`, so it is counted, fenced, and answered from the transcript after a preemption. A
worker has one endpoint, on the loopback, opened when the first of its runs wants it. Whose request it is, the key says:
each attempt at a run has one of its own, which ends with it. The key of the model's endpoint is not handed on.

Starlette and uvicorn are loaded with the first request for a way in: most workers have none.
"""

from __future__ import annotations

import asyncio
import contextvars
import secrets
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from workers.modelling.model import Completion, Model, WayIn
from workers.verdict import Over, Verdict

__all__ = ["Door", "Gateway"]

_LOOPBACK: Final = "127.0.0.1"
_KEY_BYTES: Final = 32
"""Of randomness: nobody on this machine guesses it."""


@dataclass(frozen=True, slots=True)
class _Serving:
    """The endpoint, once it is open."""

    port: int
    stopping: asyncio.Event
    ended: asyncio.Future[None]


class Gateway:
    """One worker's endpoint; see the module's text."""

    def __init__(self) -> None:
        """It is not open yet."""
        self._lock = threading.Lock()  # a plain solver has a thread of its own
        self._doors: dict[str, Door] = {}
        self._serving: _Serving | None = None

    def door(self, model: Model, name: str, verdict: asyncio.Future[Verdict]) -> Door:
        """For one attempt at a run: `model` asks, `name` is what a client must call it, `verdict` ends the attempt."""
        return Door(self, model, name, verdict)

    def admit(self, door: Door) -> WayIn:
        """A way in, from any thread. Raises OSError when no socket can be had, RuntimeError when `door` is shut."""
        with self._lock:
            if door.is_shut:
                raise RuntimeError("this run is over: nobody asks in its name any more")
            if self._serving is None:
                self._serving = self._open(door.loop)
            if door.way_in is None:
                url, key = f"http://{_LOOPBACK}:{self._serving.port}/v1", f"evalbus-{secrets.token_urlsafe(_KEY_BYTES)}"
                self._doors[key], door.way_in = door, WayIn(url, key, door.name)
            return door.way_in

    def shut(self, door: Door) -> None:
        """From now on its key is nobody's."""
        with self._lock:
            door.is_shut = True
            if door.way_in is not None:
                del self._doors[door.way_in.api_key]

    def _open(self, loop: asyncio.AbstractEventLoop) -> _Serving:
        listener = socket.create_server((_LOOPBACK, 0), backlog=256)
        serving = _Serving(listener.getsockname()[1], asyncio.Event(), loop.create_future())
        # In a context of its own: what it serves is not the run's that was there first.
        loop.call_soon_threadsafe(partial(self._start, listener, serving), context=contextvars.Context())
        return serving

    def _start(self, listener: socket.socket, serving: _Serving) -> None:
        from workers.modelling.openai_api import make_app  # noqa: PLC0415 - see the module's text
        from workers.serving import serve  # noqa: PLC0415

        task = asyncio.create_task(serve(make_app(self._doors.get), listener, serving.stopping, lambda: None))

        def over(done: asyncio.Task[None]) -> None:
            listener.close()
            if not serving.ended.done():
                serving.ended.set_result(None)
            if not done.cancelled():
                done.result()

        task.add_done_callback(over)

    async def aclose(self) -> None:
        """Let go of everybody and close."""
        with self._lock:
            serving, self._serving = self._serving, None
        if serving is not None:
            serving.stopping.set()
            await serving.ended


class Door:
    """One attempt at a run, as far as its clients get to it."""

    def __init__(self, gateway: Gateway, model: Model, name: str, verdict: asyncio.Future[Verdict]) -> None:
        """See `Gateway.door`. On the worker's loop."""
        self.loop, self.name = asyncio.get_running_loop(), name
        self._gateway, self._model, self._verdict = gateway, model, verdict
        self._context = contextvars.copy_context()  # whose lines in the log name the run
        self._asking: set[asyncio.Task[Completion]] = set()
        self.way_in: WayIn | None = None
        self.is_shut = False

    def open(self) -> WayIn:
        """Address and key, the same each time. Raises as `Gateway.admit`."""
        return self._gateway.admit(self)

    def ask(self, messages: Sequence[Mapping[str, object]], params: Mapping[str, Any]) -> asyncio.Task[Completion]:
        """A call of `run.model`'s, under way. It is cancelled when the attempt is over."""
        asking = self._model.complete(messages, **params)
        asked = self.loop.create_task(asking, context=self._context.copy())
        self._asking.add(asked)
        asked.add_done_callback(self._asking.discard)
        return asked

    @property
    def end(self) -> Over:
        """What became of the run, for a client that waits in vain."""
        verdict = self._verdict.result() if self._verdict.done() and not self._verdict.cancelled() else None
        return verdict if isinstance(verdict, Over) else Over("run_over", "this attempt at the run is over")

    def shut(self) -> None:
        """The attempt is over."""
        self._gateway.shut(self)
        for asked in self._asking:
            asked.cancel()
