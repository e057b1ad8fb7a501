"""What the lab's interfaces share: its state, and the misbehaviour that any server is capable of."""

from __future__ import annotations

import asyncio
import hmac
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from workers.lab.asking import BadRequest
from workers.lab.counts import Counting
from workers.lab.exchange import Exchange, Header
from workers.lab.mischief import Kind, Mischief, parse
from workers.lab.plan import Plan
from workers.lab.tickets import Tickets

__all__ = ["Failure", "State", "asked_mischief", "is_welcome", "meets", "plain_failure", "refuses"]

Failure = Callable[[str, str], object]
"""Of an error's kind and message: the body that says so."""

_PAGE: Final = b"<!doctype html>\n<title>Sign in</title>\n<h1>This network asks you to sign in</h1>\n"


@dataclass(slots=True)
class State:
    """A lab, but for its socket."""

    plan: Plan
    counting: Counting
    latency: float = 0.0
    """Seconds before each token."""
    tokens: int | None = None
    """Length of an answer that nobody has scripted; None: a few words."""
    api_key: str | None = None
    """What a request to the model must carry; None: nothing is asked for."""
    tickets: Tickets = field(default_factory=Tickets)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)


def meets(state: State, exchange: Exchange, request_id: str, asked: str | None, content: str) -> Mischief | None:
    """The mischief of this request; raises `BadRequest` when it asks for one that there is not."""
    written = exchange.header("lab-mischief") or asked
    wanted: Mischief | str | None = ""
    if written is not None:
        try:
            wanted = parse(written)
        except ValueError as error:
            raise BadRequest(f"Lab-Mischief: {error}") from None
        if wanted is not None and exchange.api not in wanted.kind.apis:
            raise BadRequest(f"Lab-Mischief: {wanted.kind} is no mischief of {exchange.api}")
    if state.plan.is_early(exchange.api):
        state.counting.early(exchange.api)
    chosen = state.plan.choose(exchange.api, request_id, wanted, content)
    exchange.told |= {"request_id": request_id, "mischief": None if chosen is None else chosen.kind.value}
    return chosen


async def refuses(state: State, exchange: Exchange, chosen: Mischief | None, failure: Failure) -> bool:
    """Whether the mischief is one that keeps the request from being served; then it has been done."""
    if chosen is None:
        return False
    match chosen.kind:
        case Kind.DROP:
            state.counting.misbehaved(exchange.api, chosen)
            await exchange.cut("drop")
        case Kind.HANG:
            state.counting.misbehaved(exchange.api, chosen)
            await exchange.gone()
            await exchange.lost()
        case Kind.RATE_LIMITED:
            state.counting.misbehaved(exchange.api, chosen)
            await exchange.json(429, failure("rate_limit_error", "the lab limits the rate"), *_retry_after(state))
        case Kind.BROKEN:
            state.counting.misbehaved(exchange.api, chosen)
            await exchange.json(500, failure("api_error", "the lab is broken"))
        case Kind.OVERLOADED:
            state.counting.misbehaved(exchange.api, chosen)
            await exchange.json(503, failure("overloaded_error", "the lab is overloaded"), *_retry_after(state))
        case Kind.HTML:
            state.counting.misbehaved(exchange.api, chosen)
            await exchange.answer(200, _PAGE, "text/html; charset=utf-8")
        case _:
            return False
    return True


def _retry_after(state: State) -> tuple[Header, ...]:
    """Whole seconds, as HTTP has it, rounded up; and milliseconds, as OpenAI's servers add."""
    seconds = state.plan.retry_after
    return (
        Header("retry-after", str(math.ceil(seconds))),
        Header("retry-after-ms", str(math.ceil(seconds * 1000))),
    )


def is_welcome(state: State, exchange: Exchange) -> bool:
    """Whether the request carries the key, as OpenAI's or Anthropic's clients send it."""
    if state.api_key is None:
        return True
    given = exchange.header("x-api-key") or (exchange.header("authorization") or "").removeprefix("Bearer ")
    return hmac.compare_digest(given.encode(), state.api_key.encode())


def asked_mischief(content: Mapping[str, object]) -> str | None:
    """Of the body's field."""
    value = content.get("lab_mischief")
    return value if isinstance(value, str) else None


def plain_failure(kind: str, message: str) -> object:
    """The body of an error of the tickets and tools."""
    return {"error": {"type": kind, "message": message}}
