"""The connections to endpoints: one pool a process, closed at its end.

The client library parses in C. One that parses in Python took a worker more than all the rest of a run does, and one
whose pool looks at every connection for each request took as much again.
"""

from __future__ import annotations

import io
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from bus.errors import InputError

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Client", "open_client"]

_CONNECT: Final = 10.0
"""Seconds until a host counts as unreachable: three lost SYNs. All other times are the spec's."""
_KEEP: Final = 3.0
"""Seconds for which an idle connection is used again. Common servers drop them after 5: a request that meets the drop
is lost with an unknown outcome."""
_LONGEST_LINE: Final = 64 * 1024
"""Bytes of a header's line."""
_IN_ONE_GO: Final = 256 * 1024
"""Bytes of a body that are handed to the connection at once; a longer one is read as it leaves."""


def _silence() -> None:
    """Keep the client library's own logs off, whatever the user's code sets up for the root.

    They tell what servers send; an endpoint that sends our key back would put it there.
    """
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL + 1)


@cache
def _trust() -> ssl.SSLContext:
    """The certificates that are trusted: read once, they are some hundred files' worth."""
    import httpx  # noqa: PLC0415 - only who speaks TLS needs it

    context = httpx.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class Client:
    """Requests that carry what they are given and nothing else; proxies are those of the environment.

    It has no bound on connections: how many requests are in flight is decided at the endpoint's desk. Its methods raise
    `aiohttp.ClientError`, and OSError.
    """

    def __init__(self) -> None:
        """Nothing is connected yet. Close it with `aclose`."""
        self._session: aiohttp.ClientSession | None = None
        self._proxies: dict[str, str | None] = {}

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> aiohttp.ClientResponse:
        """The head of the answer; its body comes as it is read. To be closed. No redirect is followed."""
        return await self._send("POST", url, headers, body if len(body) <= _IN_ONE_GO else io.BytesIO(body))

    async def get(self, url: str) -> tuple[int, bytes]:
        """Status and body."""
        async with await self._send("GET", url, {}, None) as response:
            return response.status, await response.read()

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], data: bytes | io.BytesIO | None
    ) -> aiohttp.ClientResponse:
        proxy = self._proxy(url)
        is_secret = url.startswith("https:") or (proxy is not None and proxy.startswith("https:"))
        return await self._opened().request(
            method, url, headers=headers, data=data, allow_redirects=False, proxy=proxy,
            ssl=_trust() if is_secret else True,
        )  # fmt: skip

    def _opened(self) -> aiohttp.ClientSession:
        """On the loop that uses it."""
        if self._session is None:
            # Here, not above: every role reads what endpoints are, and most suites ask none; it takes as long as all
            # the rest.
            import aiohttp  # noqa: PLC0415

            _silence()
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP),
                headers={"user-agent": "evalbus"},
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, connect=_CONNECT),
                max_line_size=_LONGEST_LINE,
                max_field_size=_LONGEST_LINE,
                trust_env=False,  # it would send the passwords of a .netrc
            )
        return self._session

    def _proxy(self, url: str) -> str | None:
        """The environment's proxy for this URL's host, looked up once. Raises InputError for one that is none."""
        parts = urlsplit(url)
        place = f"{parts.scheme}://{parts.netloc}"
        if place not in self._proxies:
            found = getproxies()
            proxy = found.get(parts.scheme) or found.get("all")
            bypassed = [name.strip() for name in found.get("no", "").split(",")]
            if proxy is not None and ("*" in bypassed or proxy_bypass(parts.netloc)):
                proxy = None
            if proxy is not None and "://" not in proxy:
                proxy = f"http://{proxy}"
            if proxy is not None and not proxy.startswith(("http://", "https://")):
                kind = proxy.partition(":")[0]
                raise InputError(f"the environment names a proxy of the kind {kind}", remedy="use one over HTTP")
            self._proxies[place] = proxy
        return self._proxies[place]

    async def aclose(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


@asynccontextmanager
async def open_client() -> AsyncIterator[Client]:
    """A client for as long as the block."""
    client = Client()
    try:
        yield client
    finally:
        await client.aclose()
