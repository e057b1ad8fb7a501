"""The ticket interface: effects that can be seen from outside, for tools that must not do them twice.

    POST /tickets        {any JSON object}    Idempotency-Key, Evalbus-Plane      201 made · 200 the first again
    POST /tickets/undo   {"undoes": key}      or the header Evalbus-Undoes        200, also before the original
    GET  /tickets · GET /tickets/{key}        what there is

An answer echoes `Idempotency-Key`: without the echo nobody can tell whose answer it is. 400: a header or the
body is missing or wrong · 403: the key is of another plane than the header says · 410: the key was undone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workers.lab.asking import BadRequest, json_object
from workers.lab.exchange import Exchange, Header
from workers.lab.mischief import Kind
from workers.lab.service import State, asked_mischief, meets, plain_failure, refuses
from workers.lab.tickets import PLANES, plane_of

__all__ = ["list_tickets", "make_ticket", "show_ticket", "undo_ticket"]


@dataclass(frozen=True, slots=True)
class _Addressed:
    """A request whose headers are in order."""

    plane: str
    key: str
    content: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class _Going:
    """A request that is served, and what goes wrong with it."""

    kind: Kind | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Done:
    status: int
    content: object


async def make_ticket(state: State, exchange: Exchange) -> None:
    """`POST /tickets`."""
    asked = await _addressed(state, exchange)
    if asked is None:
        return
    state.counting.key_request(asked.plane, asked.key)
    going = await _before(state, exchange, asked, asked.key)
    if going is None:
        return
    done = _make(state, exchange, asked, forget=going.kind is Kind.FORGET)
    if going.kind is Kind.DUPLICATE:
        done = _make(state, exchange, asked, forget=False)
    await _after(exchange, going, done)


async def undo_ticket(state: State, exchange: Exchange) -> None:
    """`POST /tickets/undo`."""
    asked = await _addressed(state, exchange)
    if asked is None:
        return
    undoes = exchange.text_header("evalbus-undoes") or asked.content.get("undoes")
    if not isinstance(undoes, str) or not undoes:
        await _invalid(state, exchange, "neither Evalbus-Undoes nor undoes names a key")
        return
    if plane_of(undoes) not in (None, asked.plane):
        await _wrong_plane(state, exchange, undoes, asked.plane)
        return
    going = await _before(state, exchange, asked, undoes)
    if going is None:
        return
    for _ in range(2 if going.kind is Kind.DUPLICATE else 1):
        came = state.tickets.undo(asked.plane, undoes)
        state.counting.ticket(came.value, asked.plane, undoes)
    await _after(exchange, going, _Done(200, {"undoes": undoes, "plane": asked.plane, "state": "undone"}))


async def list_tickets(state: State, exchange: Exchange) -> None:
    """`GET /tickets`: the planes beside each other."""
    await exchange.json(
        200, {plane: [ticket.as_json() for ticket in state.tickets.of_plane(plane)] for plane in PLANES}
    )


async def show_ticket(state: State, exchange: Exchange) -> None:
    """`GET /tickets/{key}`: of the plane that the key or the header names, else of live."""
    key = exchange.path.removeprefix("/tickets/")
    plane = plane_of(key) or exchange.header("evalbus-plane") or PLANES[0]
    known = state.tickets.of_key(plane, key) if plane in PLANES else None
    if known is None:
        await exchange.json(404, plain_failure("not_found", "no request has come under this key"))
    else:
        await exchange.json(200, known)


# --- the parts of a request ------------------------------------------------------------------------------


async def _addressed(state: State, exchange: Exchange) -> _Addressed | None:
    """The request, or None: it was refused. Nothing is done, nor goes wrong, before these checks."""
    key, plane = exchange.text_header("idempotency-key"), exchange.header("evalbus-plane")
    if not key:
        await _invalid(state, exchange, "the header Idempotency-Key is missing")
    elif plane not in PLANES:
        await _invalid(state, exchange, f"the header Evalbus-Plane is missing, or not one of {', '.join(PLANES)}")
    elif plane_of(key) not in (None, plane):
        await _wrong_plane(state, exchange, key, plane)
    else:
        try:
            return _Addressed(plane, key, json_object(exchange.body or b"{}"))
        except BadRequest as error:
            await _invalid(state, exchange, str(error))
    return None


async def _invalid(state: State, exchange: Exchange, message: str) -> None:
    state.counting.ticket("invalid")
    await exchange.json(400, plain_failure("invalid_request", message))


async def _wrong_plane(state: State, exchange: Exchange, key: str, plane: str) -> None:
    state.counting.ticket("plane_mismatch")
    message = f"the key is of plane {plane_of(key)}, the header says {plane}"
    await exchange.json(403, plain_failure("wrong_plane", message))


async def _before(state: State, exchange: Exchange, asked: _Addressed, content: str) -> _Going | None:
    """Meet the mischief, up to the moment of the effect; None: it was refused, or the lab stops."""
    try:
        chosen = meets(state, exchange, asked.key, asked_mischief(asked.content), content)
    except BadRequest as error:
        await _invalid(state, exchange, str(error))
        return None
    if chosen is None:
        return _Going()
    if await refuses(state, exchange, chosen, plain_failure):
        return None
    state.counting.misbehaved(exchange.api, chosen)
    if chosen.kind is Kind.SLOW_COMMIT:
        await exchange.pause(chosen.seconds, for_client=False)
    elif chosen.kind is Kind.CLIENT_LEFT:
        await exchange.gone(chosen.seconds)
    return None if state.stopping.is_set() else _Going(chosen.kind, chosen.seconds)


def _make(state: State, exchange: Exchange, asked: _Addressed, *, forget: bool) -> _Done:
    made = state.tickets.make(asked.plane, asked.key, asked.content, forget=forget)
    if made is None:
        state.counting.ticket("gone", asked.plane, asked.key)
        return _Done(410, plain_failure("gone", "this key was undone"))
    if made.repeated:
        state.counting.ticket("repeats", asked.plane, asked.key)
        if made.other_body:
            state.counting.ticket("other_body", asked.plane, asked.key)
        return _Done(200, made.ticket.as_json())
    state.counting.ticket("commits", asked.plane, asked.key)
    if not exchange.is_open:
        state.counting.ticket("after_client_left", asked.plane, asked.key)
    return _Done(201, made.ticket.as_json())


async def _after(exchange: Exchange, going: _Going, done: _Done) -> None:
    """Answer, as far as the mischief lets it."""
    echo = [Header("idempotency-key", exchange.header("idempotency-key") or "")]
    answered = True
    match going.kind:
        case Kind.COMMIT_THEN_CUT:
            await exchange.cut(Kind.COMMIT_THEN_CUT.value)
            return
        case Kind.COMMIT_THEN_500:
            done, echo = _Done(500, plain_failure("api_error", "the lab broke after it had done it")), []
        case Kind.LATE:
            answered = await exchange.pause(going.seconds)
        case Kind.MISSING_ECHO:
            echo = []
        case Kind.WRONG_ECHO:
            echo = [Header("idempotency-key", f"{echo[0].value}-other")]
        case _:
            pass
    if going.kind is Kind.EMPTY:
        answered = await exchange.answer(done.status, b"", "application/json", *echo)
    elif answered:
        answered = await exchange.json(done.status, done.content, *echo)
    if not answered:
        await exchange.lost()
