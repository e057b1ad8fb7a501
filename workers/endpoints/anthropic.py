"""Anthropic's `/v1/messages` as a stream.

    message_start        id, model, usage so far (input_tokens, cache_…, a first output_tokens)
    content_block_start  index, content_block: text | thinking | tool_use
    content_block_delta  index, delta: text_delta | thinking_delta | input_json_delta | …
    message_delta        stop_reason; usage, cumulative: its figures replace the earlier ones and are not added to them
    message_stop

`input_tokens` counts what is neither read from the cache nor written to it, so both stand beside it and are added.
Messages and tools may be given as for `chat`: a system message, tool calls and their results find their place here.
What is written as this API wants it goes through as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from bus.errors import InputError
from workers.endpoints.dialect import Answer, Dialect, Fields, count
from workers.endpoints.sse import SseEvent
from workers.endpoints.values import Messages, Piece, Usage

__all__ = ["ANTHROPIC"]

_VERSION = "2023-06-01"

_STOPS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
"""Stop reasons in the words that `Reply` uses; any other stays as it is."""

_FIGURES = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")


class _MessagesAnswer(Answer):
    """Gathers the events of one message."""

    _figures: Mapping[str, int] = {}

    def feed(self, event: SseEvent) -> Piece | None:
        """See Answer."""
        fields = self.fields(event)
        match fields.get("type"):
            case "message_start":
                message = self.part(fields, "message")
                self.identify(message)
                return self.piece("", usage=self._usage(self.part(message, "usage")))
            case "content_block_start":
                return self._block(fields, self.part(fields, "content_block"))
            case "content_block_delta":
                return self._delta(fields, self.part(fields, "delta"))
            case "message_delta":
                reason = self.word(self.part(fields, "delta"), "stop_reason")
                self.finish_reason = _STOPS.get(reason, reason) or self.finish_reason
                return self.piece("", usage=self._usage(self.part(fields, "usage")))
            case "message_stop":
                self.done = True
                return None
            case "error":
                raise self.failures.of_event(fields.get("error"))
            case str():
                return None  # a ping, the end of a block, or what a later version adds
            case _:
                raise self.malformed("an event has no 'type'")

    def _block(self, fields: Fields, block: Fields) -> Piece | None:
        if block.get("type") != "tool_use":
            return self.piece(self.word(block, "text"), self.word(block, "thinking"))
        # Its `input` is empty here, and comes in parts.
        return self.piece("", self.call(self._index(fields), self.word(block, "id"), self.word(block, "name"), ""))

    def _delta(self, fields: Fields, delta: Fields) -> Piece | None:
        hidden = self.word(delta, "thinking")
        if delta.get("type") == "input_json_delta":
            hidden += self.call(self._index(fields), "", "", self.word(delta, "partial_json"))
        return self.piece(self.word(delta, "text"), hidden)

    def _index(self, fields: Fields) -> int:
        index = fields.get("index")
        if isinstance(index, bool) or not isinstance(index, int):
            raise self.malformed("a content block has no index")
        return index

    def _usage(self, fields: Fields) -> Usage | None:
        new = {name: value for name in _FIGURES if (value := count(fields, name)) is not None}
        if not new:
            return None
        self._figures = {**self._figures, **new}
        fresh, read, written, output = (self._figures.get(name, 0) for name in _FIGURES)
        return Usage(fresh + read + written, output, read)


def _key(key: str) -> Mapping[str, str]:
    return {"x-api-key": key}


def _body(model: str, messages: Messages, params: dict[str, object]) -> Fields:
    if "max_tokens" not in params:
        raise InputError("Anthropic's API needs 'max_tokens'", remedy="set it in the model's params")
    given = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
    system = _system([message.get("content") for message in given if message.get("role") == "system"])
    turns = _turns([message for message in given if message.get("role") != "system"])
    if not turns:
        raise InputError("a model call needs at least one message of the user")
    if isinstance(tools := params.get("tools"), Sequence):
        params = {**params, "tools": [_tool(tool) for tool in tools]}
    if system:
        params = {**params, "system": system}
    return {"model": model, "messages": turns, **params, "stream": True}


def _system(contents: Sequence[object]) -> str | list[object]:
    """The system messages as one text, or as one list of blocks when any of them is one."""
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) == len(contents):
        return "\n\n".join(texts)
    blocks: list[object] = []
    for content in contents:
        blocks += [{"type": "text", "text": content}] if not isinstance(content, list | tuple) else content
    return blocks


def _turns(messages: Sequence[Fields]) -> list[Fields]:
    """The user's and the model's turns. Results of tools are the user's, and those of one turn stand in one message."""
    turns: list[Fields] = []
    results: list[Fields] = []
    for message in messages:
        if message.get("role") == "tool":
            if not results:
                turns.append({"role": "user", "content": results})
            results.append(
                {
                    "type": "tool_result",
                    "tool_use_id": message.get("tool_call_id"),
                    "content": message.get("content", ""),
                }
            )
        else:
            results = []
            turns.append(_with_calls(message))
    return turns


def _with_calls(message: Fields) -> Fields:
    calls = message.get("tool_calls")
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        return message
    content = message.get("content")
    blocks: list[object] = [{"type": "text", "text": content}] if isinstance(content, str) and content else []
    for call in calls:
        try:
            function = call["function"]
            parsed = json.loads(function["arguments"])
            blocks.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": parsed})
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"a message's tool call cannot be read: {error!r}") from None
    return {"role": message.get("role"), "content": blocks}


def _tool(tool: object) -> object:
    """OpenAI's description of a tool in Anthropic's form."""
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping):
        return tool
    told = {"description": function["description"]} if "description" in function else {}
    return {"name": function.get("name"), **told, "input_schema": function.get("parameters", {"type": "object"})}


ANTHROPIC = Dialect("/v1/messages", {"anthropic-version": _VERSION}, _key, _body, _MessagesAnswer)
