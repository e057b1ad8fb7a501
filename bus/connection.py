"""What a role holds to reach its server: the user's, by a URL, or the embedded one of this directory."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bus.fitness import ServerFacts, check_fit
from bus.server import EmbeddedServer, home_directory
from bus.target import Target, parse_url
from bus.wire import Address

__all__ = ["Endpoint", "ServerFacts", "Target", "check_fit", "parse_url"]


class Endpoint:
    """A server to talk to; the `Door` of a `bus.link.Link`. While it is open, an embedded server stays up."""

    def __init__(self, server: Target | EmbeddedServer) -> None:
        """The user's server, or our own, which is closed by `aclose`."""
        self._server = server

    @classmethod
    def from_options(cls, url: str | None, home: Path | None) -> Endpoint:
        """The server of `url`, or else the embedded one of `home`, which is started if need be; that blocks.

        Raises InputError for a wrong URL or home, and a ServerError when the embedded server does not start.
        Whether a server of the user's is there, and fit, `check_fit` finds out.
        """
        if url is not None:
            return cls(parse_url(url))
        return cls(EmbeddedServer.open(home_directory(home)))

    @property
    def target(self) -> Target:
        """Where the server is now; an embedded one may have a new socket after `ensure`."""
        return self._server if isinstance(self._server, Target) else parse_url(self._server.url)

    @property
    def embedded(self) -> EmbeddedServer | None:
        """The embedded server, if it is one."""
        return self._server if isinstance(self._server, EmbeddedServer) else None

    def address(self) -> Address:
        """Where to connect now."""
        return self.target.address()

    async def ensure(self) -> bool:
        """Start an embedded server again if it died; True when it had. One of the user's is left alone."""
        embedded = self.embedded
        return embedded is not None and await asyncio.to_thread(embedded.ensure)

    async def aclose(self) -> None:
        """Let go. An embedded server without other users ends, unless it is pinned."""
        if self.embedded is not None:
            await asyncio.to_thread(self.embedded.close)
