"""Tools behind HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from workers.tools.headers import complaint, headers_of
from workers.tools.text import LONGEST, first_line, json_of
from workers.tools.values import Answer, Order, SilenceError

if TYPE_CHECKING:
    import httpx

__all__ = ["ECHO", "REFUSALS", "HttpTool"]

ECHO: Final = "Idempotency-Key"
"""The header that carries the key there, and back."""

REFUSALS: Final = frozenset({400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 429})
"""Status codes by which a server says that it has not done what it was asked to."""

_CONNECT: Final = 10.0
_PAUSES: Final = (0.1, 0.5)
"""Seconds before connecting again. That is safe: nothing was sent."""

_BUSY: Final = 429
_LONGEST_PAUSE: Final = 5.0
"""Seconds between two attempts at an undo, at most."""

_MOST: Final = 4 * LONGEST
"""Bytes of an answer that are read: as many as the longest result may have."""


class HttpTool:
    """An address: the arguments are POSTed as JSON, with the key and the plane as headers.

    A success counts when it sends the key back: something on the way may answer 200 to what it does not understand.
    Redirects are not followed, for nobody knows whether the first place has acted.

    Who was refused for a rate may ask again, and that is the solver's to decide. Nobody asks again for an undo: one
    that is refused so, or finds nobody there, has done nothing, and is tried again as long as it has time.
    """

    def __init__(self, url: str, headers_env: Mapping[str, str]) -> None:
        """`headers_env`: header → environment variable."""
        import httpx  # noqa: PLC0415 - only who calls one needs it

        self._url, self._headers_env = url, dict(headers_env)
        # Made once: it reads every certificate that this machine trusts.
        self._trust = httpx.create_ssl_context() if url.startswith("https:") else False

    async def run(self, order: Order) -> Answer:
        """Make the call. Raises `SilenceError`."""
        import httpx  # noqa: PLC0415

        if (why := complaint(self._headers_env)) is not None:
            return Answer(False, f"{why}; nothing was sent")
        # A kept connection that the other side is just closing would make a doubt out of nothing.
        limits = httpx.Limits(max_keepalive_connections=0)
        patience = httpx.Timeout(None, connect=_CONNECT)
        async with httpx.AsyncClient(verify=self._trust, limits=limits, timeout=patience) as client:
            request = client.build_request("POST", self._url, content=json_of(order.args), headers=self._headers(order))
            try:
                for pause in _pauses(order):
                    try:
                        said = await _send(client, request)
                    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
                        refused = Answer(False, f"no connection ({type(error).__name__}); nothing was sent")
                    else:
                        if said.status != _BUSY or order.context.undoes is None:
                            return said.answer
                        refused = said.answer
                    await asyncio.sleep(pause)
            except (httpx.HTTPError, httpx.StreamError, OSError) as error:  # its text may quote what was sent
                raise SilenceError(f"the connection broke: {type(error).__name__}") from None
        return refused

    def _headers(self, order: Order) -> dict[str, str]:
        context = order.context
        headers = headers_of(self._headers_env)
        headers |= {"Content-Type": "application/json", "Evalbus-Plane": context.plane.value}
        if context.key:
            headers[ECHO] = context.key
        if context.undoes is not None:
            headers["Evalbus-Undoes"] = context.undoes
        return headers


@dataclass(frozen=True, slots=True)
class _Said:
    """A server's answer, and its status code."""

    status: int
    answer: Answer


def _pauses(order: Order) -> Iterator[float]:
    """Seconds to wait after each attempt that has done nothing, the last one included; no more when they are over."""
    if order.context.undoes is None:
        yield from (*_PAUSES, 0.0)
        return
    pause = _PAUSES[0]
    while time.monotonic() + pause < order.context.deadline:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE)
    yield 0.0


async def _send(client: httpx.AsyncClient, request: httpx.Request) -> _Said:
    response = await client.send(request, stream=True)
    try:
        body = bytearray()
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > _MOST:
                break
    finally:
        await response.aclose()
    text = _decoded(bytes(body), response.charset_encoding)
    status = f"HTTP {response.status_code}"
    if response.is_success:
        return _Said(response.status_code, Answer(True, text, response.headers.get(ECHO)))
    if response.status_code in REFUSALS:
        said = first_line(text)
        return _Said(response.status_code, Answer(False, f"{status}: {said}" if said else status))
    raise SilenceError(f"{status}: {first_line(text)}")


def _decoded(body: bytes, charset: str | None) -> str:
    """A body as text. The call has been made: what the server calls its charset is no reason to lose the answer."""
    try:
        return body.decode(charset or "utf-8", "replace")
    except (LookupError, ValueError):  # it is none, no encoding of text, or one that replaces nothing
        return body.decode("utf-8", "replace")
