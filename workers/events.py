"""An event of a transcript for whoever looks for a mistake: what the model said, called, and was told."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["call_told", "said_in"]


def said_in(event: Mapping[str, Any]) -> Iterator[str]:
    """The texts of a model's answer, or of results of tools: its words, then a line for each call. Else nothing."""
    kind = event.get("kind")
    if kind == "model":
        reply = event.get("reply")
        reply = reply if isinstance(reply, Mapping) else {}
        if text := _text(reply.get("text")):
            yield text
        calls = reply.get("tool_calls")
        yield from (f"calls {call_told(call)}" for call in (calls if isinstance(calls, list) else ()))
    elif kind == "tools":
        results = event.get("results")
        for result in results if isinstance(results, list) else ():
            if isinstance(result, Mapping):
                failed = "" if result.get("ok") else " failed"
                yield f"{_text(result.get('tool'))}{failed}: {_text(result.get('observation'))}"
            else:
                yield _text(result)


def call_told(call: Any) -> str:  # noqa: ANN401 - any JSON value
    """`search {"query": "Oslo"}`: the arguments are a text of JSON already."""
    if not isinstance(call, Mapping) or "name" not in call:
        return _text(call)
    return f"{_text(call['name'])} {_text(call.get('arguments'))}".rstrip()


def _text(value: Any) -> str:  # noqa: ANN401 - any JSON value
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
