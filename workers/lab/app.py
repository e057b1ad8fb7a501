"""The lab's addresses, and what stands around each request: who may come, what is counted, what is logged.

model     POST /v1/chat/completions · /v1/completions · /v1/messages     GET /v1/models
tickets   POST /tickets · /tickets/undo                                  GET /tickets · /tickets/{key}
tools     GET or POST /lookup · /slow
the lab   GET /counts · /billing/{request_id}                            POST /mischief
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from workers.lab.asking import BadRequest, json_object
from workers.lab.counts import Counting
from workers.lab.exchange import BodyTooLong, Exchange
from workers.lab.mischief import Api, Mischief, parse
from workers.lab.model_api import chat, completions, list_models, messages
from workers.lab.service import State, plain_failure
from workers.lab.ticket_api import list_tickets, make_ticket, show_ticket, undo_ticket
from workers.lab.tool_api import look_up, slow

__all__ = ["make_app", "script"]

Handler = Callable[[State, Exchange], Awaitable[None]]
Log = Callable[[dict[str, object]], None]

_LOOPBACK: Final = frozenset({"localhost", "::1"})
_MOST_TIMES: Final = 100_000


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """One address, as an ASGI application."""

    handler: Handler
    api: Api
    state: State
    counting: Counting
    log: Log | None
    loopback_only: bool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        exchange = Exchange(self.api, scope, receive, send, self.counting, self.state.stopping)
        with self.counting.serving(self.api):
            try:
                async with exchange:
                    if exchange.left.is_set():  # within its request: what came of the body is not what was meant
                        await exchange.lost()
                    elif self.loopback_only and not _is_loopback(exchange.header("host")):
                        await exchange.json(421, plain_failure("misdirected", "this lab answers on loopback only"))
                    else:
                        await self.handler(self.state, exchange)
            except BodyTooLong:
                await exchange.json(413, plain_failure("too_long", "the lab does not take so long a body"))
        if self.log is not None:
            self.log(
                {
                    "event": "lab.served",
                    "api": self.api.value,
                    "method": scope["method"],
                    "path": exchange.path,
                    "status": exchange.status,
                    "cut": exchange.cause,
                    "seconds": round(time.monotonic() - began, 6),
                    **exchange.told,
                }
            )


def _is_loopback(host: str | None) -> bool:
    """Whether a request was meant for this machine: a web page elsewhere can name loopback by a name of its own."""
    if host is None:
        return True
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.lower() in _LOOPBACK or name.startswith("127.")


def make_app(state: State, *, log: Log | None = None, loopback_only: bool = True) -> Starlette:
    """The application. `log` gets one entry a request; it holds no header and no text of a prompt."""

    def route(path: str, api: Api, methods: str, handler: Handler) -> Route:
        endpoint = _Endpoint(handler, api, state, state.counting, log, loopback_only)
        return Route(path, endpoint, methods=methods.split())

    def watching(path: str, methods: str, handler: Handler) -> Route:  # neither counted nor logged
        endpoint = _Endpoint(handler, Api.TOOLS, state, Counting(0), None, loopback_only)
        return Route(path, endpoint, methods=methods.split())

    return Starlette(
        routes=[
            route("/v1/chat/completions", Api.MODEL, "POST", chat),
            route("/v1/completions", Api.MODEL, "POST", completions),
            route("/v1/messages", Api.MODEL, "POST", messages),
            watching("/v1/models", "GET", list_models),
            route("/tickets", Api.TICKETS, "POST", make_ticket),
            route("/tickets/undo", Api.TICKETS, "POST", undo_ticket),
            watching("/tickets", "GET", list_tickets),
            watching("/tickets/{key:path}", "GET", show_ticket),
            route("/lookup", Api.TOOLS, "GET POST", look_up),
            route("/slow", Api.TOOLS, "GET POST", slow),
            watching("/counts", "GET", _counts),
            watching("/billing/{request_id:path}", "GET", _billing),
            watching("/mischief", "POST", _mischief),
        ]
    )


async def _counts(state: State, exchange: Exchange) -> None:
    await exchange.json(200, state.counting.read().as_json())


async def _billing(state: State, exchange: Exchange) -> None:
    await exchange.json(200, state.counting.last_bill(exchange.path.removeprefix("/billing/")).as_json())


async def _mischief(state: State, exchange: Exchange) -> None:
    try:
        asked = _read_script(exchange.body)
        script(state, asked.written, asked.api, asked.times)
    except (BadRequest, ValueError) as error:
        await exchange.json(400, plain_failure("invalid_request", str(error)))
        return
    await exchange.json(200, {"mischief": asked.written, "times": asked.times})


@dataclass(frozen=True, slots=True)
class _Script:
    written: str
    api: Api | None
    times: int


def _read_script(body: bytes) -> _Script:
    content = json_object(body)
    written, api, times = content.get("mischief"), content.get("api"), content.get("times", 1)
    if not isinstance(written, str):
        raise BadRequest("mischief is missing, or not a text")
    if isinstance(times, bool) or not isinstance(times, int) or not 1 <= times <= _MOST_TIMES:
        raise BadRequest(f"times is not a whole number from 1 to {_MOST_TIMES}")
    if api is not None and api not in set(Api):
        raise BadRequest(f"api is not one of {', '.join(Api)}")
    return _Script(written, None if api is None else Api(str(api)), times)


def script(state: State, written: str, api: Api | None, times: int) -> Mischief | None:
    """The next requests of an interface (None: of each that can) meet a mischief; raises `ValueError`."""
    mischief = parse(written)
    able = frozenset(Api) if mischief is None else mischief.kind.apis
    if api is not None and api not in able:
        raise ValueError(f"{written} is no mischief of {api}")
    state.plan.script(mischief, able if api is None else frozenset({api}), times)
    return mischief
