"""Who may ask the web server, and for what.

It shows prompts, answers and refusals, so it is for whoever started it. It listens on the loopback unless told, and
then asks for a token. A page on the internet can make a browser send requests to the loopback too: under a name of its
own that it has rebound to 127.0.0.1 (the Host header tells), or as plain cross-site requests (they cannot read the
answer, and there is nothing that they could change: only GET and HEAD are answered).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bus.errors import InputError

__all__ = ["SHORTEST_TOKEN", "Guard", "Keyring", "is_loopback", "strict"]

SHORTEST_TOKEN: Final = 16
"""Characters. It is compared on every request, as often as somebody likes to guess."""

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_DOOR = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>evalbus: token</title><link rel="stylesheet" href="/static/live.css"></head>
<body><main class="door"><h1>This server asks for its token</h1>
<p>It was printed once, when <code>evalbus serve</code> was started.</p>
<form method="get" action="/"><label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="off" required><button>Open</button></form>
<p>You came by a link that holds it? <a href="/">Go on</a>.</p></main></body></html>
"""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True)
class Keyring:
    """The token, and the cookie that stands for it: who reads the cookie does not learn the token."""

    token: str
    cookie: str

    @classmethod
    def of(cls, token: str, port: int) -> Keyring:
        """Raises InputError for a token that can be guessed. Browsers do not tell cookies of two ports apart."""
        if len(token) < SHORTEST_TOKEN:
            raise InputError(
                f"a token of {len(token)} characters can be guessed", remedy=f"at least {SHORTEST_TOKEN}, or give none"
            )
        return cls(token, f"evalbus_{port}")

    @property
    def cookie_value(self) -> str:
        """What the cookie holds."""
        return hmac.new(self.token.encode(), b"evalbus serve: cookie", hashlib.sha256).hexdigest()

    def opens(self, token: str) -> bool:
        """Whether this is the token. Takes as long for a near miss as for nonsense."""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode())

    def admits(self, headers: Headers) -> bool:
        """Whether a request shows the token, or its cookie."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.opens(given.strip()):
            return True
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        cookie = cookies.get(self.cookie)
        return cookie is not None and hmac.compare_digest(cookie.value.encode(), self.cookie_value.encode())


class Guard:
    """Stands before the whole application: what it lets through may read everything."""

    def __init__(self, app: ASGIApp, *, host: str, keyring: Keyring | None) -> None:
        """`host`: where the server listens. `keyring`: None when whoever reaches it may look."""
        self._app, self._host, self._keyring = app, host, keyring

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer it here, or let it through; either way with the headers that keep a browser out of trouble."""
        if scope["type"] != "http":
            return
        refusal = self._refusal(scope)
        await (self._app if refusal is None else refusal)(scope, receive, strict(send))

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("This server only shows.\n", 405, {"Allow": "GET, HEAD"})
        if is_loopback(self._host) and not self._is_ours(headers.get("host", "")):
            return PlainTextResponse("This server is not known by that name. Use http://localhost.\n", 421)
        if self._keyring is None or scope["path"] == "/static/live.css":  # the page that asks for the token needs it
            return None
        if (redirect := self._enter(scope, self._keyring)) is not None:
            return redirect
        return (
            None if self._keyring.admits(headers) else Response(_DOOR, 401, {"WWW-Authenticate": "Bearer"}, "text/html")
        )

    def _is_ours(self, host: str) -> bool:
        """By name only: the port may be another, at the far end of an SSH tunnel."""
        name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
        return is_loopback(name) or name == self._host

    def _enter(self, scope: Scope, keyring: Keyring) -> Response | None:
        """For a right token in the address: a cookie, and the same address without it, for logs and shoulders."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if not any(name == "token" and keyring.opens(value) for name, value in query):
            return None
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        path = scope.get("raw_path", b"/").decode("latin-1").partition("?")[0]
        # Never "//elsewhere", which a browser takes for another host.
        answer = RedirectResponse("/" + path.lstrip("/") + (f"?{rest}" if rest else ""), 303)
        answer.set_cookie(keyring.cookie, keyring.cookie_value, httponly=True, samesite="strict", path="/")
        return answer


def strict(send: Send) -> Send:
    """The same, with the headers of this server where a response has none of its own."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sent
