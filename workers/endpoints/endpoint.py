"""The face of an endpoint: a request is prepared, hashed, licensed by who called, and only then sent.

    prepared = endpoint.request(messages, {"temperature": 0})
    async with endpoint.stream(prepared, request_id) as stream:
        async for piece in stream:
            ...
    stream.reply

Leaving the context closes the connection, and that is how a request is cancelled: servers stop generating when their
client goes away. Nothing is ever sent twice from here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from workers.endpoints.anthropic import ANTHROPIC
from workers.endpoints.chat import CHAT
from workers.endpoints.client import Client
from workers.endpoints.completions import COMPLETIONS
from workers.endpoints.dialect import Dialect
from workers.endpoints.values import Api, EndpointSpec, Messages, Params, Piece, Prepared, Reply, Usage

__all__ = ["Endpoint", "Stream", "make_endpoint"]

_DIALECTS: Mapping[Api, Dialect] = {"chat": CHAT, "completions": COMPLETIONS, "anthropic": ANTHROPIC}


class Stream(Protocol):
    """An answer on its way: its pieces, once, in order."""

    def __aiter__(self) -> AsyncIterator[Piece]:
        """The pieces. Raises CutError, SilentError, OverloadedError, RateLimitedError, RefusedAnswerError."""

    @property
    def usage(self) -> Usage | None:
        """The endpoint's last figure so far; also after an error. None when it gave none."""

    @property
    def reply(self) -> Reply:
        """The whole answer. Raises RuntimeError before the last piece was read."""


class Endpoint(Protocol):
    """One model behind one wire format."""

    @property
    def spec(self) -> EndpointSpec:
        """What it was made of."""

    def request(self, messages: Messages, params: Params | None = None) -> Prepared:
        """The bytes to be sent. `params` go over those of the spec. Raises InputError when they cannot be sent."""

    def stream(self, prepared: Prepared, request_id: str) -> AbstractAsyncContextManager[Stream]:
        """Send it. Entering waits for the head of the response and raises any EndpointError."""


def make_endpoint(spec: EndpointSpec, client: Client) -> Endpoint:
    """The adapter for the spec's API. Raises InputError when the URL or the key cannot be used."""
    from workers.endpoints.exchange import HttpEndpoint  # noqa: PLC0415 - with the client library; see `Client`

    return HttpEndpoint(spec, client, _DIALECTS[spec.api])
