"""Tools behind HTTP."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

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

_MOST: Final = 4 * LONGEST
"""Bytes of an answer that are read: as many as the longest result may have."""


class HttpTool:
    """An address: the arguments are POSTed as JSON, with the key and the plane as headers.

    A success counts when it sends the key back: something on the way may answer 200 to what it does not understand.
    Redirects are not followed, for nobody knows whether the first place has acted.
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

        for variable in self._headers_env.values():
            value = os.environ.get(variable, "")
            if not value or not value.isascii() or not value.isprintable():
                return Answer(
                    False, f"{variable}, set where the tool is called, is no header's value; nothing was sent"
                )
        # A kept connection that the other side is just closing would make a doubt out of nothing.
        limits = httpx.Limits(max_keepalive_connections=0)
        patience = httpx.Timeout(None, connect=_CONNECT)
        async with httpx.AsyncClient(verify=self._trust, limits=limits, timeout=patience) as client:
            request = client.build_request("POST", self._url, content=json_of(order.args), headers=self._headers(order))
            try:
                for pause in (*_PAUSES, None):
                    try:
                        return await _send(client, request)
                    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
                        if pause is None:
                            return Answer(False, f"no connection ({type(error).__name__}); nothing was sent")
                        await asyncio.sleep(pause)
            except (httpx.HTTPError, httpx.StreamError, OSError) as error:  # its text may quote what was sent
                raise SilenceError(f"the connection broke: {type(error).__name__}") from None
        raise AssertionError("the last attempt returns or raises")

    def _headers(self, order: Order) -> dict[str, str]:
        context = order.context
        headers = {name: os.environ[variable] for name, variable in self._headers_env.items()}
        headers |= {"Content-Type": "application/json", "Evalbus-Plane": context.plane.value}
        if context.key:
            headers[ECHO] = context.key
        if context.undoes is not None:
            headers["Evalbus-Undoes"] = context.undoes
        return headers


async def _send(client: httpx.AsyncClient, request: httpx.Request) -> Answer:
    response = await client.send(request, stream=True)
    try:
        body = bytearray()
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > _MOST:
                break
    finally:
        await response.aclose()
    text = bytes(body).decode(_charset(response), "replace")
    status = f"HTTP {response.status_code}"
    if response.is_success:
        return Answer(True, text, response.headers.get(ECHO))
    if response.status_code in REFUSALS:
        said = first_line(text)
        return Answer(False, f"{status}: {said}" if said else status)
    raise SilenceError(f"{status}: {first_line(text)}")


def _charset(response: httpx.Response) -> str:
    try:
        "".encode(response.charset_encoding or "utf-8")
    except LookupError:
        return "utf-8"
    return response.charset_encoding or "utf-8"
