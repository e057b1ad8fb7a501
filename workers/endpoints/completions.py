"""`/completions`, for base models: a text goes in, and what follows it comes out.

data: {"id":…,"model":…,"choices":[{"index":0,"text":" world","finish_reason":null}]}
"""

from __future__ import annotations

from bus.errors import InputError
from workers.endpoints.chat import ChatAnswer, bearer, with_usage
from workers.endpoints.dialect import Dialect, Fields
from workers.endpoints.values import Messages

__all__ = ["COMPLETIONS"]


class _CompletionsAnswer(ChatAnswer):
    """The same chunks around another choice."""

    def choice(self, choice: Fields) -> tuple[str, str]:
        """Text of the answer, and no other output."""
        return self.word(choice, "text"), ""


def _body(model: str, messages: Messages, params: dict[str, object]) -> Fields:
    if not isinstance(messages, str):
        raise InputError("a completion takes a text, not messages", remedy='use api = "chat" for a model that chats')
    return {"model": model, "prompt": messages, **with_usage(params)}


COMPLETIONS = Dialect("/completions", {}, bearer, _body, _CompletionsAnswer)
