"""What a role holds to reach its server: the user's, by a URL, or the embedded one of this directory."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bus.errors import ServerUnfit
from bus.fitness import ServerFacts, check_fit
from bus.sentinel import located
from bus.server import EmbeddedServer, home_directory
from bus.server_url import parse_url
from bus.target import Target
from bus.topology import Topology
from bus.wire import Address

__all__ = ["Endpoint", "ServerFacts", "Target", "check_fit", "parse_url"]


class Endpoint:
    """A server to talk to; the `Door` of a `bus.link.Link`. While it is open, an embedded server stays up."""

    def __init__(self, server: Target | EmbeddedServer) -> None:
        """The user's server, or our own, which is closed by `aclose`."""
        self._server = server
        self._primary: Target | None = None
        self.topology = Topology(server) if isinstance(server, Target) and server.cluster is not None else None
        """Of a cluster: which of its servers has what. Then this is no door; `bus.topology.ShardDoor` is one."""

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

    @property
    def is_watched(self) -> bool:
        """Whether Sentinels put a replica in its place when it dies."""
        return self.target.sentinel is not None

    @property
    def is_ours(self) -> bool:
        """Whether it is the embedded server of a directory."""
        return self.embedded is not None

    def address(self) -> Address:
        """Where to connect now; behind Sentinels, what the last `ensure` was told."""
        return (self._primary or self.target).address()

    async def ensure(self) -> bool:
        """Before each connection: ask the Sentinels, if there are any, which server is the primary now.

        An embedded server that died is started again; True when it was. One of the user's is left alone. Raises
        ServerUnreachable, ServerUnfit.
        """
        if self.topology is not None:
            raise ServerUnfit(f"{self.target.redacted}: this needs a single server, not a cluster (give redis://…)")
        if isinstance(self._server, Target):
            self._primary = await located(self._server)
        embedded = self.embedded
        return embedded is not None and await asyncio.to_thread(embedded.ensure)

    async def aclose(self) -> None:
        """Let go. An embedded server without other users ends, unless it is pinned."""
        if self.embedded is not None:
            await asyncio.to_thread(self.embedded.close)
