"""Asking an endpoint that answers as a test says: what its chunks look like, and what a request came to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pydantic import SecretStr

from tests.sse_server import Answer, Exchange, SseServer, events, serving
from tests.waiting import soon
from workers.endpoints import (
    Client,
    Endpoint,
    EndpointError,
    EndpointSpec,
    Piece,
    Refusal,
    RefusedAnswerError,
    Reply,
    Stream,
    Usage,
    make_endpoint,
    open_client,
)
from workers.endpoints.values import Api

CANARY = 'sk-"canary"/<4f1e>&+%'
"""A key that JSON, HTML and URLs would each spell in another way."""
HELLO = [{"role": "user", "content": "Hello"}]
DONE = "data: [DONE]\n\n"


def chunk(content: str | None = None, finish: str | None = None, **more: object) -> dict[str, object]:
    """One chunk of a chat."""
    delta = {} if content is None else {"content": content}
    return {
        "id": "chatcmpl-1",
        "model": "m-2024",
        "system_fingerprint": "fp_1",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    } | more


def usage(given: int, output: int, cached: int | None = None) -> dict[str, object]:
    """OpenAI's usage."""
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"prompt_tokens": given, "completion_tokens": output, "total_tokens": given + output, **details}


LAST = chunk(choices=[], usage=usage(9, 2, 4))
WHOLE = events(chunk("Hel"), chunk("lo"), chunk(finish="stop"), LAST) + DONE


@dataclass(slots=True)
class Got:
    """What one request came to: a reply or an error."""

    pieces: list[Piece] = field(default_factory=list)
    reply: Reply | None = None
    error: EndpointError | None = None
    usage: Usage | None = None

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


@asynccontextmanager
async def endpoint_at(
    server: SseServer,
    api: Api = "chat",
    *,
    key: str = CANARY,
    params: Mapping[str, object] | None = None,
    first_token: float = 5.0,
    idle: float = 5.0,
    total: float = 8.0,
) -> AsyncIterator[Endpoint]:
    """An endpoint at the server, with a client of its own."""
    given = {"max_tokens": 5} if api == "anthropic" else {}
    spec = EndpointSpec(
        api,
        server.url,
        "m",
        SecretStr(key),
        {**given, **(params or {})},
        first_token=first_token,
        idle=idle,
        total=total,
    )
    async with open_client() as client:
        yield make_endpoint(spec, client)


async def ask(endpoint: Endpoint, **params: object) -> Got:
    """One request, to whatever end."""
    got = Got()
    stream: Stream | None = None
    messages = "Hello" if endpoint.spec.api == "completions" else HELLO
    try:
        async with endpoint.stream(endpoint.request(messages, params), "request-1") as stream:
            async for piece in stream:
                got.pieces.append(piece)
        got.reply = stream.reply
    except EndpointError as error:
        got.error = error
        assert CANARY not in f"{error!s} {error!r} {error.__cause__!r}"
        assert "\n" not in str(error)
    if stream is not None:
        got.usage = stream.usage
    return got


async def told(answer: Answer, api: Api = "chat", **how: object) -> Got:
    """What one request to a server that answers so comes to."""
    async with serving(answer) as server, endpoint_at(server, api, **how) as endpoint:  # type: ignore[arg-type]
        return await soon(ask(endpoint))


async def said(*packets: str | bytes, api: Api = "chat") -> Got:
    """What a whole response of these packets comes to."""

    async def answer(to: Exchange) -> None:
        await to.stream(*packets)

    return await told(answer, api)


def refusal(got: Got) -> Refusal:
    """Why the answer was refused."""
    assert isinstance(got.error, RefusedAnswerError), got
    assert got.error.may_pass
    assert not got.error.free
    return got.error.reason


def offline(api: Api = "chat", **params: object) -> Endpoint:
    """An endpoint that is never asked."""
    return make_endpoint(EndpointSpec(api, "http://x.example/v1", "m", params=params), Client())


def tool(index: int | None, name: str = "", arguments: str = "", call_id: str = "") -> dict[str, object]:
    """A chunk with a part of one tool call."""
    part: dict[str, object] = {} if index is None else {"index": index}
    part |= {"id": call_id} if call_id else {}
    return chunk(
        choices=[{"index": 0, "delta": {"tool_calls": [part | {"function": {"name": name, "arguments": arguments}}]}}]
    )
