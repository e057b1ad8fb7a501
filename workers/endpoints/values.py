"""What goes to an endpoint and what comes back, the same for every wire format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pydantic import SecretStr

from bus.types import Digest

__all__ = [
    "BYTES_A_TOKEN",
    "Api",
    "EndpointSpec",
    "Messages",
    "Params",
    "Piece",
    "Prepared",
    "Reply",
    "ToolCall",
    "Usage",
    "estimate_tokens",
]

Api = Literal["chat", "completions", "anthropic"]
Messages = Sequence[Mapping[str, object]] | str
"""A conversation (`{"role": …, "content": …}` each), or a text: a prompt, or one message of a user."""
Params = Mapping[str, object]

BYTES_A_TOKEN = 4


def estimate_tokens(text: str | bytes) -> int:
    """How many tokens a text may be: one for each four bytes of UTF-8, rounded up.

    It is the rule of thumb for English and is off by half for code or other scripts. What was found by it is marked
    `estimated` wherever it stands.
    """
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "surrogatepass"))
    return -(-size // BYTES_A_TOKEN)


@dataclass(frozen=True, slots=True)
class EndpointSpec:
    """One model at one endpoint. Its repr never shows the key."""

    api: Api
    base_url: str
    """As the client libraries take it: `https://api.openai.com/v1`, `https://api.anthropic.com`."""
    model: str
    key: SecretStr = field(default_factory=lambda: SecretStr(""))
    """Sent as the bearer (Anthropic: as `x-api-key`) and shown nowhere; empty: none is sent."""
    params: Params = field(default_factory=dict)
    """Of every request, in the words of the API: `temperature`, `max_tokens`. A None or a call's own leaves one out.

    `stream_options = false` is for servers that refuse that field; usage is estimated then.
    """
    first_token: float = 120.0
    """Seconds from the request to the first piece. Pings and comments are none: a proxy sends them for the dead."""
    idle: float = 60.0
    """Seconds between two pieces, and from the last one to the end."""
    total: float = 600.0
    """Seconds for the whole request."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that has not left yet. It holds no secret: the key is added when it leaves."""

    url: str
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    """Exactly what is sent."""
    prompt_hash: Digest
    """SHA-256 of `body`."""
    input_estimate: int
    """Tokens of the prompt, by `estimate_tokens` of the body."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that a request cost. `cached` is a part of `input`, in every wire format."""

    input: int
    output: int
    cached: int = 0
    estimated: bool = False
    """True when the endpoint gave no figure."""

    @property
    def total(self) -> int:
        """What a budget counts."""
        return self.input + self.output


class Piece(NamedTuple):
    """What one event of the stream brought."""

    text: str
    """New text of the answer; empty for reasoning, for a part of a tool call and for bare usage."""
    tokens: int
    """One for an event with output, else 0. Servers send no less than a token an event, and may send many."""
    usage: Usage | None = None
    """What the request has cost up to here, where the endpoint says so: cumulative, never to be added up."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model asks for. `arguments` is the text of a JSON object."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer with the identity that the endpoint gave it."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    """In the words of OpenAI's API for every wire format: `stop`, `length`, `tool_calls`, `content_filter`, …"""
    usage: Usage
    model: str
    """What the endpoint says that it ran, which need not be the name that was asked for."""
    fingerprint: str
    """`system_fingerprint`, or empty."""
    id: str
