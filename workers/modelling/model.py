"""`run.model`: what a solver asks a model with.

    completion = await run.model.complete([{"role": "user", "content": "…"}], temperature=0)
    completion.text

The answer is in the run's transcript before the solver has it, so a run that is taken over by another worker is told
the same again without being charged for it. A call that cannot be answered (no budget, no retry, an endpoint that
takes no request) ends the run as a named hole: there is nothing to catch, and nothing to handle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from bus.errors import InputError
from workers.endpoints import Reply, ToolCall, Usage
from workers.modelling.table import MOST_TOKENS

__all__ = ["Asker", "Completion", "Entrance", "Missing", "Model", "WayIn", "reply_event"]

_LIMITS: Final = frozenset({"max_tokens", "max_completion_tokens"})
"""The names that endpoints have for the longest answer."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's answer."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    """`stop`, `length`, `tool_calls`, `content_filter`, …, whatever the wire format calls it."""
    usage: Usage
    model: str
    """What the endpoint says that it ran."""
    fingerprint: str = ""
    """Its `system_fingerprint`, where it gives one."""
    id: str = ""
    """The endpoint's name of this answer."""

    @property
    def message(self) -> dict[str, object]:
        """The answer as a message of the conversation, in OpenAI's form, to be appended before the results of tools."""
        told: dict[str, object] = {"role": "assistant", "content": self.text}
        if self.tool_calls:
            told["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        return told

    @classmethod
    def of_event(cls, event: Mapping[str, Any]) -> Completion:
        """As the transcript has it."""
        reply = event["reply"]
        return cls(
            text=reply["text"],
            tool_calls=tuple(ToolCall(**call) for call in reply.get("tool_calls", ())),
            finish_reason=reply["finish_reason"],
            usage=Usage(**event["usage"]),
            model=reply["model"],
            fingerprint=reply.get("fingerprint", ""),
            id=reply.get("id", ""),
        )


def reply_event(step: str, request: str, reply: Reply) -> dict[str, object]:
    """The transcript's event of an answer; `request` is the digest of what was sent."""
    told: dict[str, object] = {"text": reply.text, "finish_reason": reply.finish_reason, "model": reply.model}
    if reply.tool_calls:
        told["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in reply.tool_calls
        ]
    told |= {"fingerprint": reply.fingerprint} if reply.fingerprint else {}
    told |= {"id": reply.id} if reply.id else {}
    usage: dict[str, object] = {"input": reply.usage.input, "output": reply.usage.output}
    usage |= {"cached": reply.usage.cached} if reply.usage.cached else {}
    usage |= {"estimated": True} if reply.usage.estimated else {}
    return {"kind": "model", "step": step, "request": request, "reply": told, "usage": usage}


class Asker(Protocol):
    """Who makes the call, or finds it in the transcript."""

    async def ask(
        self, messages: Sequence[Mapping[str, object]] | str, params: Mapping[str, object], max_tokens: int | None
    ) -> Completion:
        """The answer. Does not return when there will be none."""

    def default(self, name: str) -> object:
        """What the suite says of a parameter."""


@dataclass(frozen=True, slots=True)
class WayIn:
    """Where a client that speaks OpenAI's API asks a run's model (`workers.modelling.gateway`)."""

    base_url: str
    """Up to and with `/v1`."""
    api_key: str
    name: str
    """Of the model, as the client must call it."""

    @property
    def environment(self) -> dict[str, str]:
        """The same as the variables in which such clients look for it; the name is in `EVALBUS_MODEL`."""
        urls = dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_API_BASE"), self.base_url)
        return {**urls, "OPENAI_API_KEY": self.api_key, "EVALBUS_MODEL": self.name}


class Entrance(Protocol):
    """What gives one attempt at a run its way in: `workers.modelling.gateway.Door`."""

    def open(self) -> WayIn:
        """The way in, from any thread; the same each time."""


class Missing:
    """What stands in a run for something that its suite does not declare: any use of it says so."""

    def __init__(self, what: str, remedy: str) -> None:
        """`what` as the solver writes it, such as `run.model`."""
        self._said = f"{what} is not there: {remedy}"

    def __getattr__(self, _name: str) -> Any:  # noqa: ANN401 - it never returns
        """Raise RuntimeError, which names the remedy."""
        raise RuntimeError(self._said)


_NO_WAY_IN: Any = Missing("a way in", "only a worker gives one, to a solver")


class Model:
    """One run's model. Calls of one run are made one after another, in the order in which they were asked for.

    A client of one's own, or a program, asks it under `base_url` with `api_key`: the same call, by another way.
    """

    def __init__(self, asker: Asker, api: str, entrance: Entrance = _NO_WAY_IN) -> None:
        """`api`: of the suite's table."""
        self._asker, self._api, self._entrance = asker, api, entrance

    @property
    def base_url(self) -> str:
        """Where OpenAI's API is spoken for this run, up to and with `/v1`."""
        return self._entrance.open().base_url

    @property
    def api_key(self) -> str:
        """This attempt's key to it: nobody else's, and worth nothing when the attempt is over."""
        return self._entrance.open().api_key

    @property
    def name(self) -> str:
        """The model's name at its endpoint."""
        return self._entrance.open().name

    @property
    def environment(self) -> dict[str, str]:
        """The same for a program: `OPENAI_BASE_URL`, `OPENAI_API_BASE`, `OPENAI_API_KEY`, `EVALBUS_MODEL`."""
        return self._entrance.open().environment

    async def complete(
        self,
        messages: Sequence[Mapping[str, object]] | str,
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        stop: str | Sequence[str] | None = None,
        seed: int | None = None,
        tools: Sequence[Mapping[str, object]] | None = None,
        **params: object,
    ) -> Completion:
        """Ask the suite's model; `messages` may be a text: one message of a user's, or a prompt for `completions`.

        What is left out is as the suite's `[model]` has it. `tools` are described as the API wants them; calling them
        is the solver's business (`run.tools`). Other parameters go into the request's body as they are.

        Raises InputError for messages and limits that no endpoint could take. What an endpoint fails at is not raised
        here: it ends the run (ARCHITECTURE.md, Conversations and turns).
        """
        given: dict[str, object] = {
            "max_tokens": _limit("max_tokens", max_tokens),
            "temperature": temperature,
            "stop": [stop] if isinstance(stop, str) else list(stop) if stop else None,
            "seed": seed,
            "tools": list(tools) if tools else None,
            **params,
        }
        asked = in_words_of(self._api, {name: value for name, value in given.items() if value is not None})
        if not _LIMITS.isdisjoint(asked):  # then without the suite's under the other name: endpoints refuse both
            asked = {**dict.fromkeys(_LIMITS), **asked}
        if not isinstance(messages, str):
            messages = [_message(message) for message in messages]
            if not messages:
                raise InputError("a model call without a message")
        limit = max_tokens
        for given_as in (params.get("max_completion_tokens"), self._asker.default("longest_answer")):
            limit = given_as if limit is None and isinstance(given_as, int) else limit
        return await self._asker.ask(messages, asked, _limit("max_completion_tokens", limit))

    async def text(self, messages: Sequence[Mapping[str, object]] | str, **params: Any) -> str:  # noqa: ANN401 - as above
        """`complete`, for its text."""
        return (await self.complete(messages, **params)).text


def _limit(name: str, tokens: int | None) -> int | None:
    if tokens is not None and (type(tokens) is not int or not 1 <= tokens <= MOST_TOKENS):
        raise InputError(f"{name} is a whole number from 1 to {MOST_TOKENS:,}, not {tokens!r:.40}")
    return tokens


def _message(message: object) -> Mapping[str, object]:
    if not isinstance(message, Mapping):
        remedy = '{"role": "user", "content": "…"}, or the whole prompt as one text'
        raise InputError(f"a message is an object, not {type(message).__name__}", remedy=remedy)
    return dict(message)


def in_words_of(api: str, params: Mapping[str, object]) -> dict[str, object]:
    """Parameters under the names that the API has for them."""
    renamed = {"stop": "stop_sequences", "max_completion_tokens": "max_tokens"} if api == "anthropic" else {}
    return {renamed.get(name, name): value for name, value in params.items()}
