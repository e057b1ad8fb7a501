"""The connections to endpoints: one pool a process, closed at its end."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx

__all__ = ["open_client"]

_CONNECT = 10.0
"""Seconds until a host counts as unreachable: three lost SYNs. All other times are the spec's."""
_KEEP = 3.0
"""Seconds for which an idle connection is used again. Common servers drop them after 5: a request that meets the drop
is lost with an unknown outcome."""


def _silence() -> None:
    """Keep the client libraries' own logs off, whatever the user's code sets up for the root.

    They tell each request's URL and each response's headers; an endpoint that sends our key back would put it there.
    """
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


@cache
def _trust() -> ssl.SSLContext:
    """The certificates that are trusted: read once, they are some hundred files' worth."""
    import httpx  # noqa: PLC0415 - see `open_client`

    return httpx.create_ssl_context()


@asynccontextmanager
async def open_client() -> AsyncIterator[httpx.AsyncClient]:
    """A client whose requests carry what they are given and nothing else; proxies are those of the environment.

    It has no bound on connections: how many requests are in flight is decided at the endpoint's desk.
    """
    # Here, not above: every role reads what endpoints are, and most suites ask none; it takes as long as the rest.
    import httpx  # noqa: PLC0415

    _silence()
    async with httpx.AsyncClient(
        verify=_trust(),
        headers={"user-agent": "evalbus"},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        follow_redirects=False,
        timeout=httpx.Timeout(None, connect=_CONNECT),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=_KEEP),
    ) as client:
        yield client
