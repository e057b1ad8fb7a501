"""Read a request to the model: what is asked, in which of the three shapes, and what its text tells the lab to do.

A line of a user's text that begins with `LAB-` scripts the lab:

    LAB-ANSWER: the text to answer          (or a JSON string, for text of more than one line)
    LAB-CALL: {"name": …, "arguments": {…}}   (or a list of them: parallel calls)
    LAB-TOKENS: 40                          the length of an answer that is not scripted
    LAB-CACHED: 10                          so many prompt tokens are said to have come from a cache
    LAB-MISCHIEF: cut@3*1                   as the header `Lab-Mischief`

Several LAB-ANSWER and LAB-CALL lines are a script: the first answers the message that they stand in, the
second the next turn (after the first answer and, say, the results of its tools), and so on. The latest message
with such a line counts. After a script's end its last answer is repeated; after a last call an answer is made up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from workers.lab.words import Call, tokens

__all__ = ["Asked", "BadRequest", "Shape", "json_object", "read_request"]


class BadRequest(Exception):
    """The request cannot be served; the message says why. Answered with status 400."""


class Shape(Enum):
    """The protocol that is spoken."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    MESSAGES = "/v1/messages"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request."""

    shape: Shape
    model: str
    prompt: str
    """All text of it, one message a line: what the answer is made from, and counted as prompt tokens."""
    stream: bool
    include_usage: bool
    continuous_usage: bool
    max_tokens: int | None
    tools: tuple[str, ...]
    """Names of the tools that are offered."""
    scripted: str | tuple[Call, ...] | None
    """What a `LAB-` line says the answer is."""
    tokens: int | None
    cached: int
    mischief: str | None
    """Of the body's `lab_mischief` or a `LAB-MISCHIEF` line."""

    @property
    def prompt_tokens(self) -> int:
        """By the lab's rule: words."""
        return len(tokens(self.prompt))


@dataclass(frozen=True, slots=True)
class _Message:
    role: str
    text: str
    """What stands in text blocks."""
    other: str = ""
    """Tool calls and their results."""


@dataclass(frozen=True, slots=True)
class _Script:
    says: str | tuple[Call, ...] | None = None
    tokens: int | None = None
    cached: int = 0
    mischief: str | None = None


def read_request(shape: Shape, body: bytes) -> Asked:
    """Raises `BadRequest`."""
    content = json_object(body)
    messages = _messages(shape, content)
    script = _script_of(messages)
    options = content.get("stream_options") or {}
    if not isinstance(options, Mapping):
        raise BadRequest("stream_options is not an object")
    if content.get("n", 1) != 1:
        raise BadRequest("the lab gives one answer a request: n must be 1")
    asked_mischief = content.get("lab_mischief")
    return Asked(
        shape=shape,
        model=_text(content, "model"),
        prompt="\n".join(f"{message.text}\n{message.other}".strip() for message in messages),
        stream=content.get("stream") is True,
        include_usage=options.get("include_usage") is True,
        continuous_usage=options.get("continuous_usage_stats") is True,
        max_tokens=_max_tokens(content),
        tools=_tools(content),
        scripted=script.says,
        tokens=script.tokens,
        cached=script.cached,
        mischief=asked_mischief if isinstance(asked_mischief, str) else script.mischief,
    )


def json_object(body: bytes) -> Mapping[str, object]:
    """The body; raises `BadRequest`."""
    try:
        content: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise BadRequest("the body is not a JSON object")
    return content


def _text(content: Mapping[str, object], name: str) -> str:
    value = content.get(name)
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{name} is missing, or not a text")
    return value


def _max_tokens(content: Mapping[str, object]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = content.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise BadRequest(f"{name} is not a whole number from 1")
        return value
    return None


def _tools(content: Mapping[str, object]) -> tuple[str, ...]:
    names = []
    for tool in _list(content.get("tools")):
        function = tool.get("function", tool)
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            names.append(str(function["name"]))
    return tuple(names)


def _list(value: object) -> Sequence[Mapping[str, object]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


# --- messages --------------------------------------------------------------------------------------------


def _messages(shape: Shape, content: Mapping[str, object]) -> list[_Message]:
    if shape is Shape.COMPLETIONS:
        prompt = content.get("prompt")
        if isinstance(prompt, list) and len(prompt) == 1:
            prompt = prompt[0]
        if not isinstance(prompt, str):
            raise BadRequest("prompt is not one text")
        return [_Message("user", prompt)]
    given = content.get("messages")
    if not isinstance(given, list) or not given:
        raise BadRequest("messages is missing, or empty")
    messages = [_message(item) for item in given]
    if shape is Shape.MESSAGES:
        if "max_tokens" not in content:
            raise BadRequest("max_tokens is missing")
        if "system" in content:
            messages.insert(0, _message({"role": "system", "content": content["system"]}))
    return messages


def _message(item: object) -> _Message:
    if not isinstance(item, Mapping) or not isinstance(item.get("role"), str):
        raise BadRequest("a message is not an object with a role")
    role, content = str(item["role"]), item.get("content")
    other: list[str] = []
    for call in _list(item.get("tool_calls")):
        function = call.get("function")
        if isinstance(function, Mapping):
            other += [str(function.get("name", "")), str(function.get("arguments", ""))]
    if isinstance(content, str):
        return _Message(role, content, "\n".join(other))
    texts: list[str] = []
    for block in _list(content):
        match block.get("type"):
            case "text" | "input_text":
                texts.append(str(block.get("text", "")))
            case "tool_use":
                other += [str(block.get("name", "")), json.dumps(block.get("input"), ensure_ascii=False)]
            case "tool_result":
                result = block.get("content")
                other += [result] if isinstance(result, str) else [str(part.get("text", "")) for part in _list(result)]
            case _:
                pass  # an image has no words
    return _Message(role, "\n".join(texts), "\n".join(other))


# --- what the text tells the lab -------------------------------------------------------------------------

_LINE: Final = re.compile(r"^[ \t]*LAB-(ANSWER|CALL|TOKENS|CACHED|MISCHIEF):(.*)$", re.MULTILINE)


def _script_of(messages: Sequence[_Message]) -> _Script:
    answered = 0
    for message in reversed(messages):
        if message.role == "assistant":
            answered += 1
        elif message.role == "user" and (lines := _LINE.findall(message.text)):
            return _script(lines, answered)
    return _Script()


def _script(lines: Sequence[tuple[str, str]], turn: int) -> _Script:
    steps: list[str | tuple[Call, ...]] = []
    last: dict[str, str] = {}
    for name, value in ((name, value.strip()) for name, value in lines):
        if name == "ANSWER":
            steps.append(_answer(value))
        elif name == "CALL":
            steps.append(_calls(value))
        else:
            last[name] = value
    says = steps[min(turn, len(steps) - 1)] if steps else None
    return _Script(
        says=None if turn >= len(steps) and isinstance(says, tuple) else says,
        tokens=_number("LAB-TOKENS", last.get("TOKENS")),
        cached=_number("LAB-CACHED", last.get("CACHED")) or 0,
        mischief=last.get("MISCHIEF"),
    )


def _number(name: str, value: str | None) -> int | None:
    if value is None:
        return None
    if not re.fullmatch(r"\d{1,6}", value, re.ASCII):
        raise BadRequest(f"{name} is not a number of at most six digits")
    return int(value)


def _answer(value: str) -> str:
    if value.startswith('"'):
        try:
            text: object = json.loads(value)
        except ValueError:
            return value
        if isinstance(text, str):
            return text
    return value


def _calls(value: str) -> tuple[Call, ...]:
    try:
        content: object = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"LAB-CALL is not JSON: {error}") from None
    items = content if isinstance(content, list) else [content]
    calls = []
    for item in items:
        if not isinstance(item, Mapping) or not isinstance(item.get("name"), str):
            raise BadRequest('LAB-CALL is not {"name": …, "arguments": {…}}, nor a list of such')
        given = item.get("arguments", {})
        arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        calls.append(Call(str(item["name"]), arguments))
    return tuple(calls)
