"""The gateway's addresses: a subset of OpenAI's API, served by `run.model`.

    POST /v1/chat/completions     streamed or whole
    GET  /v1/models               the suite's model, and no other

An answer is in the transcript before its first byte leaves, so a stream comes at once, at its end. Errors have OpenAI's
form. None that ends a run has a status that client libraries send again by themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bus.errors import InputError
from workers.modelling.model import Completion
from workers.modelling.openai_form import Asked, OtherModelError, as_json, as_stream, failure, listed
from workers.verdict import Over

__all__ = ["make_app"]

_BEARER: Final = "bearer "
_CLIENT_LEFT: Final = 499
"""Nobody reads it."""


class Asker(Protocol):
    """In whose name is asked: `workers.modelling.gateway.Door`."""

    @property
    def name(self) -> str:
        """Of the model, as a request must call it."""

    @property
    def end(self) -> Over:
        """What became of the run, when a call is cancelled."""

    def ask(self, messages: Sequence[Mapping[str, object]], params: Mapping[str, Any]) -> asyncio.Task[Completion]:
        """A call under way. It may be cancelled here, and from there."""


class _Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.response = JSONResponse(failure(code, message), status)


def make_app(asker_of: Callable[[str], Asker | None]) -> Starlette:
    """The application. `asker_of`: whose key it is, None for nobody's."""

    def known(request: Request) -> Asker:
        given = request.headers.get("authorization", "")
        asker = asker_of(given[len(_BEARER) :]) if given.lower().startswith(_BEARER) else None
        if asker is None:
            told = "this key is of no run that is under way here: one attempt at a run has one, run.model.api_key"
            raise _Refused(HTTPStatus.UNAUTHORIZED, "invalid_api_key", told)
        return asker

    async def chat(request: Request) -> Response:
        asker = known(request)
        try:
            asked = Asked.read(await request.body(), asker.name)
            return await _answered(request, asker, asked)
        except OtherModelError as error:
            raise _Refused(HTTPStatus.NOT_FOUND, "model_not_found", str(error)) from error
        except InputError as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, "invalid_request", str(error)) from error

    async def models(request: Request) -> Response:
        return JSONResponse(listed(known(request).name))

    return Starlette(
        routes=[
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/models", models, methods=["GET"]),
        ],
        exception_handlers={_Refused: _refusal, HTTPException: _not_here},
    )


async def _answered(request: Request, asker: Asker, asked: Asked) -> Response:
    """The answer, for as long as the client waits for it. Raises InputError for what cannot be asked."""
    asking = asker.ask(asked.messages, asked.params)
    leaving = asyncio.create_task(_left(request))
    try:
        await asyncio.wait({asking, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            return Response(status_code=_CLIENT_LEFT)
    finally:
        leaving.cancel()
        asking.cancel()  # a call that nobody waits for is given up
    if asking.cancelled():
        end = asker.end
        status = HTTPStatus.PAYMENT_REQUIRED if end.why == "over_budget" else HTTPStatus.GONE
        raise _Refused(status, end.why, f"{end.why}: {end.detail}")
    completion = asking.result()
    if asked.streamed:
        return Response(as_stream(completion, usage=asked.usage), media_type="text/event-stream")
    return JSONResponse(as_json(completion))


async def _left(request: Request) -> None:
    """Wait until the client has gone; its body was read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _refusal(_request: Request, error: Exception) -> Response:
    assert isinstance(error, _Refused)
    return error.response


async def _not_here(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    told = f"{request.method} {request.url.path} is not here; POST /v1/chat/completions and GET /v1/models are"
    return JSONResponse(failure("not_found", told), error.status_code)
