"""OpenAI's `/chat/completions` as a stream, as every compatible server speaks it.

    data: {"id":…,"model":…,"choices":[{"index":0,"delta":{"content":"He"},"finish_reason":null}]}
    …
    data: {…,"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}
    data: {…,"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}
    data: [DONE]

Cached tokens are a part of `prompt_tokens`. A server that gives usage with each chunk gives it cumulated.
"""

from __future__ import annotations

from collections.abc import Mapping

from bus.errors import InputError
from workers.endpoints.dialect import Answer, Dialect, Fields, count
from workers.endpoints.sse import SseEvent
from workers.endpoints.values import Messages, Piece, Usage

__all__ = ["CHAT", "ChatAnswer", "bearer", "with_usage"]


class ChatAnswer(Answer):
    """Gathers chunks."""

    def feed(self, event: SseEvent) -> Piece | None:
        """See Answer."""
        if event.data.strip() == "[DONE]":
            self.done = True
            return None
        chunk = self.fields(event)
        if event.name == "error" or chunk.get("error") is not None:
            raise self.failures.of_event(chunk.get("error") or chunk)
        choices = self.items(chunk, "choices")
        self.identify(chunk)
        self.fingerprint = self.fingerprint or self.word(chunk, "system_fingerprint")
        text = hidden = ""
        if choices:
            choice = choices[0]
            if len(choices) > 1 or choice.get("index") not in (0, None):
                raise self.malformed("more than one choice")
            text, hidden = self.choice(choice)
            self.finish_reason = self.word(choice, "finish_reason") or self.finish_reason
        usage = self.part(chunk, "usage")
        return self.piece(text, hidden, _usage(usage) if usage else None)

    def choice(self, choice: Fields) -> tuple[str, str]:
        """Text of the answer, and other output."""
        delta = self.part(choice, "delta")
        text = self.word(delta, "content")
        if text and len(delta) == 1:  # as nearly every chunk has it
            return text, ""
        text += self.word(delta, "refusal")
        hidden = self.word(delta, "reasoning_content") or self.word(delta, "reasoning")
        for call in self.items(delta, "tool_calls"):
            function = self.part(call, "function")
            call_id = self.word(call, "id")
            hidden += self.call(
                self._index(call, call_id), call_id, self.word(function, "name"), self.word(function, "arguments")
            )
        return text, hidden

    def _index(self, call: Fields, call_id: str) -> int:
        """Servers that send each tool call whole leave the index out: then one with an id is a new one."""
        index = call.get("index")
        if index is None:
            return len(self._calls) if call_id or not self._calls else len(self._calls) - 1
        if isinstance(index, bool) or not isinstance(index, int):
            raise self.malformed("the index of a tool call is no number")
        return index


def _usage(fields: Fields) -> Usage | None:
    given, output = count(fields, "prompt_tokens"), count(fields, "completion_tokens")
    if not given or output is None:  # a request has a prompt: a server that says 0 has not counted
        return None
    details = fields.get("prompt_tokens_details")
    cached = count(details, "cached_tokens") if isinstance(details, dict) else None
    return Usage(given, output, min(cached or 0, given))


def bearer(key: str) -> Mapping[str, str]:
    """The key as most servers take it."""
    return {"authorization": f"Bearer {key}"}


def with_usage(params: dict[str, object]) -> dict[str, object]:
    """Ask for a stream and its usage; `stream_options = false` asks for the stream alone."""
    options = params.pop("stream_options", {"include_usage": True})
    return {**params, "stream": True, **({"stream_options": options} if options else {})}


def _body(model: str, messages: Messages, params: dict[str, object]) -> Fields:
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if not messages:
        raise InputError("a model call needs at least one message")
    return {"model": model, "messages": list(messages), **with_usage(params)}


CHAT = Dialect("/chat/completions", {}, bearer, _body, ChatAnswer)
