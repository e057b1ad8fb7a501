"""Tools that only read: what may be asked again at any time, and needs no key."""

from __future__ import annotations

import math
from collections.abc import Mapping
from hashlib import sha256
from typing import Final
from urllib.parse import parse_qsl

from workers.lab.asking import BadRequest, json_object
from workers.lab.exchange import Exchange
from workers.lab.mischief import Kind
from workers.lab.service import State, asked_mischief, meets, plain_failure, refuses
from workers.lab.words import answer

__all__ = ["look_up", "slow"]

_LONGEST: Final = 3600.0
"""Seconds that `/slow` takes at most."""


async def look_up(state: State, exchange: Exchange) -> None:
    """`/lookup?key=…`, or `{"key": …}` posted: a few words that depend on the key and the seed only."""
    given = await _given(state, exchange)
    if given is None:
        return
    key = given.get("key")
    if not isinstance(key, str) or not key:
        await exchange.json(400, plain_failure("invalid_request", "key is missing, or not a text"))
        return
    value = answer(state.plan.seed, f"lookup {key}", None, None).text
    await _tell(exchange, {"key": key, "value": value})


async def slow(state: State, exchange: Exchange) -> None:
    """`/slow?seconds=…`, or posted: answers after that time, by default one second."""
    given = await _given(state, exchange)
    if given is None:
        return
    try:
        seconds = float(str(given.get("seconds", 1)))
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= _LONGEST:
        await exchange.json(400, plain_failure("invalid_request", f"seconds is not a number from 0 to {_LONGEST:g}"))
    elif await exchange.pause(seconds):
        await _tell(exchange, {"seconds": seconds})
    else:
        await exchange.lost()


async def _given(state: State, exchange: Exchange) -> Mapping[str, object] | None:
    """The arguments; None: the request was refused, and nothing is left to do."""
    try:
        given: dict[str, object] = dict(parse_qsl(exchange.scope["query_string"].decode("latin-1")))
        if exchange.body:
            given |= json_object(exchange.body)
        content = sha256(exchange.path.encode() + repr(sorted(given.items())).encode("utf-8", "replace")).hexdigest()
        request_id = exchange.text_header("x-request-id") or exchange.text_header("idempotency-key") or content
        chosen = meets(state, exchange, request_id, asked_mischief(given), content)
    except BadRequest as error:
        await exchange.json(400, plain_failure("invalid_request", str(error)))
        return None
    if await refuses(state, exchange, chosen, plain_failure):
        return None
    if chosen is not None:
        state.counting.misbehaved(exchange.api, chosen)
        if chosen.kind is Kind.LATE and not await exchange.pause(chosen.seconds):
            await exchange.lost()
            return None
        if chosen.kind is Kind.EMPTY:
            await exchange.answer(200, b"", "application/json")
            return None
    return given


async def _tell(exchange: Exchange, content: Mapping[str, object]) -> None:
    if not await exchange.json(200, content):
        await exchange.lost()
