"""What a sealed sample, and a verdict on one, say to whoever looks; read as JSON, so that nobody needs Inspect."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["SampleShown", "explained", "sample_shown"]

_BEGINS: Final = '{"format": "evalbus-inspect-sample '
_ATTACHED: Final = "attachment://"


@dataclass(frozen=True, slots=True)
class SampleShown:
    """A sample, as `evalbus show` has a run."""

    input: Any
    """Text, or the messages."""
    target: Any
    metadata: Mapping[str, Any]
    answer: str
    """The last completion."""
    said: list[dict[str, str]]
    """Its messages, each as `{"kind": role, "text": content}`."""


def sample_shown(sealed: str) -> SampleShown | None:
    """None for what is no sealed sample."""
    if not sealed.startswith(_BEGINS):
        return None
    try:
        sample = json.loads(sealed)["sample"]
        texts = sample.get("attachments") or {}
        said = [{"kind": str(one["role"]), "text": "\n".join(_texts(one, texts))} for one in sample["messages"]]
        answer = _whole(str((sample.get("output") or {}).get("completion", "")), texts)
        return SampleShown(sample.get("input", ""), sample.get("target"), sample.get("metadata") or {}, answer, said)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def explained(verdict: bytes) -> str:
    """What its scorers wrote beside their scores; empty where they wrote nothing, or it is no verdict."""
    try:
        scores = json.loads(verdict)["scores"]
        told = {name: str(score["explanation"]) for name, score in scores.items() if score.get("explanation")}
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    return next(iter(told.values())) if len(told) == 1 else "\n".join(f"{name}: {text}" for name, text in told.items())


def _texts(message: Mapping[str, Any], attached: Mapping[str, str]) -> Iterator[str]:
    content = message.get("content") or ""
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        yield _whole(str(part["text"]), attached) if part.get("type") == "text" else f"({part.get('type')})"
    for call in message.get("tool_calls") or ():
        yield f"calls {call['function']} {json.dumps(call.get('arguments'), ensure_ascii=False)}"


def _whole(text: str, attached: Mapping[str, str]) -> str:
    """Inspect keeps what is long beside its sample."""
    return attached.get(text.removeprefix(_ATTACHED), text) if text.startswith(_ATTACHED) else text
