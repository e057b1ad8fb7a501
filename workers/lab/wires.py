"""An answer as bytes, in three protocols: OpenAI's chat, OpenAI's completions, Anthropic's messages.

Pure functions: what goes over the wire is decided here, when and whether it goes is decided in `model_api`.

    OpenAI      role · one event a token · finish [· usage, when asked for] · [DONE]
    Anthropic   message_start · blocks: start, one event a token, stop · message_delta · message_stop

Usage comes where the real ones have it. OpenAI: in the last chunk when `include_usage` asks for it, and so far
in each chunk when `continuous_usage_stats` does; cached tokens are part of the prompt's. Anthropic: the input
at the start, the output, cumulative, in each of two `message_delta` (to add them up would be wrong); cached
tokens stand beside the input's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from workers.lab.asking import Asked, Shape
from workers.lab.words import Answer, Call, Delta, Finish

__all__ = ["Identity", "Rendered", "failure", "render", "whole"]

Json = dict[str, Any]

_CREATED: Final = 1_700_000_000
"""The `created` of each answer: the same request has the same answer, byte for byte."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What an answer says of itself; None is left out."""

    id: str | None
    model: str | None
    fingerprint: str | None

    def as_json(self) -> Json:
        """For an OpenAI answer."""
        given = {"id": self.id, "model": self.model, "system_fingerprint": self.fingerprint}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Rendered:
    """A stream, in the parts that may be cut apart."""

    opening: bytes
    deltas: tuple[bytes, ...]
    finish: bytes
    done: bytes


def dumps(content: object) -> str:
    """JSON on one line. A half of a surrogate pair, which JSON can carry and UTF-8 cannot, stays escaped."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def render(asked: Asked, answer: Answer, identity: Identity) -> Rendered:
    """The stream of an answer."""
    if asked.shape is Shape.MESSAGES:
        return _anthropic(asked, answer, identity)
    return _openai(asked, answer, identity)


def whole(asked: Asked, answer: Answer, identity: Identity) -> bytes:
    """The same answer in one piece."""
    if asked.shape is Shape.MESSAGES:
        content: list[Json] = [{"type": "text", "text": answer.text}] if answer.text else []
        content += [_tool_use(call, _arguments(call)) for call in answer.calls]
        said = _message(asked, identity, content, len(answer.deltas))
        return dumps(said | {"stop_reason": _stop_reason(answer)}).encode()
    choice: Json = {"index": 0, "finish_reason": answer.finish.value, "logprobs": None}
    if asked.shape is Shape.CHAT:
        message: Json = {"role": "assistant", "content": answer.text if not answer.calls else None}
        if answer.calls:
            message["tool_calls"] = [_function(call, call.arguments) for call in answer.calls]
        choice["message"] = message
    else:
        choice["text"] = answer.text
    kind = "chat.completion" if asked.shape is Shape.CHAT else "text_completion"
    head: Json = {"object": kind, "created": _CREATED}
    return dumps(identity.as_json() | head | {"choices": [choice], "usage": _usage(asked, len(answer.deltas))}).encode()


def failure(shape: Shape, kind: str, message: str) -> Json:
    """The body of an error."""
    if shape is Shape.MESSAGES:
        return {"type": "error", "error": {"type": kind, "message": message}}
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


# --- OpenAI ----------------------------------------------------------------------------------------------


def _openai(asked: Asked, answer: Answer, identity: Identity) -> Rendered:
    chat = asked.shape is Shape.CHAT
    head = identity.as_json() | {
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": _CREATED,
    }

    def event(said: Json, so_far: int, finish: str | None = None) -> bytes:
        choice: Json = {"index": 0, **({"delta": said} if chat else said), "finish_reason": finish, "logprobs": None}
        chunk = head | {"choices": [choice]}
        if asked.continuous_usage:
            chunk["usage"] = _usage(asked, so_far)
        elif asked.include_usage:
            chunk["usage"] = None
        return _data(chunk)

    def said(delta: Delta) -> Json:
        if not chat:
            return {"text": delta.text}
        if delta.call is None:
            return {"content": delta.text}
        if delta.opens:
            return {"tool_calls": [{"index": delta.call, **_function(answer.calls[delta.call], "")}]}
        return {"tool_calls": [{"index": delta.call, "function": {"arguments": delta.text}}]}

    count = len(answer.deltas)
    last = _data(head | {"choices": [], "usage": _usage(asked, count)}) if asked.include_usage else b""
    return Rendered(
        opening=event({"role": "assistant", "content": None if answer.calls else ""}, 0) if chat else b"",
        deltas=tuple(event(said(delta), n) for n, delta in enumerate(answer.deltas, 1)),
        finish=event({} if chat else {"text": ""}, count, answer.finish.value),
        done=last + b"data: [DONE]\n\n",
    )


def _data(chunk: Json) -> bytes:
    return f"data: {dumps(chunk)}\n\n".encode()


def _function(call: Call, arguments: str) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _usage(asked: Asked, generated: int) -> Json:
    return {
        "prompt_tokens": asked.prompt_tokens,
        "completion_tokens": generated,
        "total_tokens": asked.prompt_tokens + generated,
        "prompt_tokens_details": {"cached_tokens": _cached(asked)},
    }


def _cached(asked: Asked) -> int:
    return min(asked.cached, asked.prompt_tokens)


# --- Anthropic -------------------------------------------------------------------------------------------


def _anthropic(asked: Asked, answer: Answer, identity: Identity) -> Rendered:
    deltas: list[bytes] = []
    block: int | None = None  # the open block's index
    owner: int | None = None  # the call that the open block is of; None: it is text
    for delta in answer.deltas:
        events: list[Json] = []
        if block is None or delta.call != owner:
            if block is not None:
                events.append({"type": "content_block_stop", "index": block})
            block = 0 if block is None else block + 1
            owner = delta.call
            opened = {"type": "text", "text": ""} if owner is None else _tool_use(answer.calls[owner], {})
            events.append({"type": "content_block_start", "index": block, "content_block": opened})
        if delta.call is None:
            part: Json = {"type": "text_delta", "text": delta.text}
        else:
            part = {"type": "input_json_delta", "partial_json": "" if delta.opens else delta.text}
        events.append({"type": "content_block_delta", "index": block, "delta": part})
        deltas.append(_events(events))
    count = len(answer.deltas)
    ended: list[Json] = [] if block is None else [{"type": "content_block_stop", "index": block}]
    ended += [
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": count},
        }
        for reason in (None, _stop_reason(answer))
    ]
    started = {"type": "message_start", "message": _message(asked, identity, [], 0)}
    return Rendered(
        opening=_events([started, {"type": "ping"}]),
        deltas=tuple(deltas),
        finish=_events(ended),
        done=_events([{"type": "message_stop"}]),
    )


def _events(events: Sequence[Json]) -> bytes:
    return "".join(f"event: {event['type']}\ndata: {dumps(event)}\n\n" for event in events).encode()


def _message(asked: Asked, identity: Identity, content: list[Json], generated: int) -> Json:
    said: Json = {name: value for name, value in (("id", identity.id), ("model", identity.model)) if value is not None}
    cached = _cached(asked)
    usage = {
        "input_tokens": asked.prompt_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": generated,
    }
    said |= {"type": "message", "role": "assistant", "content": content}
    return said | {"stop_reason": None, "stop_sequence": None, "usage": usage}


def _stop_reason(answer: Answer) -> str:
    return {Finish.STOP: "end_turn", Finish.LENGTH: "max_tokens", Finish.CALLS: "tool_use"}[answer.finish]


def _tool_use(call: Call, arguments: object) -> Json:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments}


def _arguments(call: Call) -> object:
    """Of a whole message: an object; what is not JSON stays the text that it is, which no client may take for one."""
    try:
        parsed: object = json.loads(call.arguments)
    except ValueError:
        return call.arguments
    return parsed
