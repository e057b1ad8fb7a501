"""A request to the gateway, as `run.model` takes it, and the answer, as a client of OpenAI's API reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from bus.errors import InputError
from workers.modelling.model import Completion

__all__ = ["Asked", "OtherModelError", "as_json", "as_stream", "failure", "listed"]

Json = dict[str, Any]

_OF_THE_WIRE: Final = frozenset({"model", "messages", "stream", "stream_options"})
"""Fields that are no parameters of the call."""
_NOT_KEPT: Final = ("audio", "function_call", "functions", "logprobs", "top_logprobs")
"""Fields that ask for what a transcript does not hold: to leave that out of the answer in silence would be a lie."""
_CREATED: Final = 0
"""Of each answer: one that is told again after a preemption is told byte for byte."""


class OtherModelError(InputError):
    """The request is for another model than the suite's."""


class _Body(BaseModel):
    """What of a request is looked at here; the endpoint judges the rest."""

    model_config = ConfigDict(strict=True)

    model: str
    messages: list[dict[str, JsonValue]] = Field(min_length=1)
    stream: bool | None = None
    stream_options: dict[str, JsonValue] | None = None
    stop: str | list[str] | None = None
    tools: list[dict[str, JsonValue]] | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A request."""

    messages: list[dict[str, JsonValue]]
    params: Mapping[str, JsonValue]
    streamed: bool
    usage: bool
    """Whether the stream is to end with the tokens."""

    @classmethod
    def read(cls, body: bytes, model: str) -> Self:
        """Raises InputError for what is no request, and OtherModelError for one that names another model than this."""
        try:
            given = json.loads(body)
            asked = _Body.model_validate(given)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise InputError(f"{'.'.join(map(str, first['loc'])) or 'the body'}: {first['msg']}") from None
        except (ValueError, RecursionError):
            raise InputError("the body is no JSON") from None
        if asked.model != model:
            raise OtherModelError(f"the suite's model is {model!r}, and the request is for {asked.model!r}")
        if unkept := next((name for name in _NOT_KEPT if given.get(name)), None):
            raise InputError(f"{unkept!r} is not taken: what it asks for is in no transcript")
        options = asked.stream_options or {}
        return cls(
            asked.messages,
            {name: value for name, value in given.items() if name not in _OF_THE_WIRE},
            bool(asked.stream),
            bool(options.get("include_usage")),
        )


def as_json(completion: Completion) -> Json:
    """The answer in one piece."""
    choice = {"index": 0, "message": completion.message, "finish_reason": completion.finish_reason, "logprobs": None}
    return {**_head(completion, "chat.completion"), "choices": [choice], "usage": _usage(completion)}


def as_stream(completion: Completion, *, usage: bool) -> bytes:
    """The answer as a stream of events: all that was said, why it ended, and the tokens if `usage`."""
    head = _head(completion, "chat.completion.chunk")
    delta = completion.message
    if completion.tool_calls:
        calls = completion.message["tool_calls"]
        assert isinstance(calls, list)
        delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(calls)]
    chunks = [
        {**head, "choices": [{"index": 0, "delta": told, "finish_reason": reason, "logprobs": None}]}
        for told, reason in ((delta, None), ({}, completion.finish_reason))
    ]
    if usage:
        chunks.append({**head, "choices": [], "usage": _usage(completion)})
    events = [*(json.dumps(chunk, separators=(",", ":")) for chunk in chunks), "[DONE]"]
    return "".join(f"data: {event}\n\n" for event in events).encode()


def _head(completion: Completion, kind: str) -> Json:
    head: Json = {"id": completion.id, "object": kind, "created": _CREATED, "model": completion.model}
    return head | ({"system_fingerprint": completion.fingerprint} if completion.fingerprint else {})


def _usage(completion: Completion) -> Json:
    usage = completion.usage
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


def listed(model: str) -> Json:
    """The list of models."""
    return {"object": "list", "data": [{"id": model, "object": "model", "created": _CREATED, "owned_by": "evalbus"}]}


def failure(code: str, message: str) -> Json:
    """An error."""
    return {"error": {"message": message, "type": "evalbus_error", "param": None, "code": code}}
