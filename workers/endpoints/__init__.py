"""Model endpoints: one face, three wire formats.

    spec = EndpointSpec("chat", "https://api.openai.com/v1", "gpt-4o-mini", SecretStr(key))
    async with open_client() as client:
        endpoint = make_endpoint(spec, client)
        prepared = endpoint.request([{"role": "user", "content": "…"}], {"temperature": 0})
        async with endpoint.stream(prepared, request_id) as stream:
            async for piece in stream:
                ...
        stream.reply

What is sent is known, and hashed, before it leaves. What comes back is a `Reply` with the identity that the endpoint
gave it, or one of the errors in `workers.endpoints.errors`; there is no third thing. An answer that only looks like one
is a `RefusedAnswerError`. Nothing is sent twice, no redirect is followed, no time is without an end, and no text that
leaves this package holds the key.

| module | |
|---|---|
| `values` | what goes in and comes out |
| `errors` | how else a request can end |
| `endpoint` | the face, and which adapter a spec asks for |
| `exchange` | one request: its times, its status, its stream |
| `sse` | bytes to events |
| `dialect` | what an adapter has to say; `chat`, `completions`, `anthropic` say it |
| `client` | the connections' life |
"""

from __future__ import annotations

from workers.endpoints.client import Client, open_client
from workers.endpoints.endpoint import Endpoint, Stream, make_endpoint
from workers.endpoints.errors import (
    BadRequestError,
    CutError,
    EndpointError,
    OverloadedError,
    RateLimitedError,
    Refusal,
    RefusedAnswerError,
    SilentError,
    UnusableError,
)
from workers.endpoints.values import EndpointSpec, Piece, Prepared, Reply, ToolCall, Usage, estimate_tokens

__all__ = [
    "BadRequestError",
    "Client",
    "CutError",
    "Endpoint",
    "EndpointError",
    "EndpointSpec",
    "OverloadedError",
    "Piece",
    "Prepared",
    "RateLimitedError",
    "Refusal",
    "RefusedAnswerError",
    "Reply",
    "SilentError",
    "Stream",
    "ToolCall",
    "UnusableError",
    "Usage",
    "estimate_tokens",
    "make_endpoint",
    "open_client",
]
