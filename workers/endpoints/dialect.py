"""What an adapter has to say of its wire format, and what all of them do alike: pack a request, gather an answer.

A dialect turns messages and parameters into a body, and events into pieces. It judges nothing: whether what was
gathered is an answer is decided here, by the same rules for each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bus.errors import InputError
from bus.types import MAX_INT
from workers.endpoints.errors import Refusal, RefusedAnswerError
from workers.endpoints.failures import Failures
from workers.endpoints.sse import SseEvent
from workers.endpoints.values import BYTES_A_TOKEN, Messages, Params, Piece, Reply, ToolCall, Usage

__all__ = ["Answer", "Dialect", "Fields", "count", "merge", "pack"]

Fields = Mapping[str, object]

_MAX_REPLY = 16 * 1024 * 1024
"""Characters of an answer. None is that long; a stream without an end would be."""

_NOTHING: Fields = {}

_OURS = ("model", "messages", "prompt", "stream")


def merge(spec: Params, call: Params | None) -> dict[str, object]:
    """The parameters of one request, by name; a None leaves one out. Raises InputError for those that are not free."""
    merged = {**spec, **(call or {})}
    for name in _OURS:
        if name in merged:
            raise InputError(f"{name!r} cannot be a parameter of a model call", remedy="it is set by evalbus")
    if merged.get("n") not in (None, 1):
        raise InputError("a model call asks for one answer, so 'n' must be 1", remedy="make several calls")
    return {name: merged[name] for name in sorted(merged) if merged[name] is not None}


def pack(body: Fields) -> bytes:
    """The body's bytes: the same for the same fields in the same order. Raises InputError for what JSON cannot say.

    Nothing below the top is sorted: the order of a schema's properties is part of the prompt that a server makes of it.
    """
    try:
        text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"a model call's messages and parameters must be JSON: {error}") from None
    # Half of a surrogate pair has no UTF-8. Inside a JSON text its escape is the right spelling.
    return text.encode("utf-8", "backslashreplace")


def count(fields: Fields, name: str) -> int | None:
    """A number of tokens, or None when there is none that can be one."""
    value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INT else None


_scan_json = json.JSONDecoder().raw_decode


def _read_json(text: str) -> object:
    """`json.loads`, without its look at blanks where there are none, which takes as long as the rest."""
    try:
        found, end = _scan_json(text)
    except ValueError:
        return json.loads(text)
    return found if end == len(text) else json.loads(text)


@dataclass(slots=True)
class _Draft:
    """A tool call that is still arriving."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class Answer:
    """What was gathered so far. A subclass feeds it from its events and sets `done` at the terminator."""

    def __init__(self, failures: Failures, input_estimate: int) -> None:
        """`input_estimate`: tokens of the prompt, for endpoints that give no figure."""
        self.failures = failures
        self.done = False
        self.usage: Usage | None = None
        self.finish_reason = ""
        self.fingerprint = ""
        self._input_estimate = input_estimate
        self._identity = {"id": "", "model": ""}
        self._text: list[str] = []
        self._calls: dict[int, _Draft] = {}
        self._outputs = 0
        self._bytes = 0

    def feed(self, event: SseEvent) -> Piece | None:
        """Take one event; None when it brought nothing for the caller. Raises EndpointError."""
        raise NotImplementedError

    # --- for the dialects --------------------------------------------------------------------------------
    def fields(self, event: SseEvent) -> Fields:
        """The event's JSON object. Raises RefusedAnswerError."""
        try:
            found = _read_json(event.data)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self.malformed(f"an event is no JSON object: {event.data}")
        return found

    def part(self, fields: Fields, name: str) -> Fields:
        """An object in an object; an absent one and null are empty. Raises RefusedAnswerError."""
        value = fields.get(name)
        if value is None:
            return _NOTHING
        if not isinstance(value, dict):
            raise self.malformed(f"{name!r} is no object")
        return value

    def items(self, fields: Fields, name: str) -> list[Fields]:
        """A list of objects; an absent one and null are empty. Raises RefusedAnswerError."""
        value = fields.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.malformed(f"{name!r} is no list of objects")
        return value

    def word(self, fields: Fields, name: str) -> str:
        """A text; an absent one and null are empty. Raises RefusedAnswerError."""
        value = fields.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.malformed(f"{name!r} is no text")
        return value

    def malformed(self, told: str) -> RefusedAnswerError:
        """For what is not of the protocol."""
        return self.failures.refused(Refusal.MALFORMED, told)

    def identify(self, fields: Fields) -> None:
        """Take `id` and `model`. Events without them are common; two that differ are parts of two answers."""
        id_, model = self._identity["id"], self._identity["model"]
        if id_ and model and fields.get("id") == id_ and fields.get("model") == model:  # as nearly every event has it
            return
        for name, known in self._identity.items():
            if (given := self.word(fields, name)) and known and given != known:
                raise self.failures.refused(Refusal.IDENTITY_CHANGED, f"{name} {given} after {known}")
            self._identity[name] = known or given

    def piece(self, text: str, hidden: str = "", usage: Usage | None = None) -> Piece | None:
        """Add text of the answer, and output that is not text of it: reasoning, a tool call's parts."""
        if usage is not None:
            self.usage = usage
        if text:
            self._text.append(text)
        if output := text + hidden if hidden else text:
            self._outputs += 1
            self._bytes += len(output) if output.isascii() else len(output.encode("utf-8", "surrogatepass"))
            if self._bytes > _MAX_REPLY:
                raise self.failures.refused(Refusal.TOO_LARGE, f"an answer of more than {_MAX_REPLY} bytes")
        return Piece(text, 1 if output else 0, usage) if output or usage else None

    def call(self, index: int, call_id: str, name: str, arguments: str) -> str:
        """Add a part of the tool call `index`. Returns what of it the model has put out, for `piece`."""
        draft = self._calls.setdefault(index, _Draft())
        draft.id = draft.id or call_id
        draft.name = draft.name or name
        draft.arguments.append(arguments)
        return name + arguments

    # --- the end -----------------------------------------------------------------------------------------
    def reply(self) -> Reply:
        """The answer, when it is one. Raises RefusedAnswerError."""
        for name, value in self._identity.items():
            if not value:
                raise self.failures.refused(Refusal.NO_IDENTITY, f"the answer has no {name!r}")
        if not self.finish_reason:
            raise self.failures.refused(Refusal.NO_FINISH_REASON, "the answer does not say why it ends")
        text = _paired("".join(self._text))
        calls = tuple(self._tool_call(index, draft) for index, draft in sorted(self._calls.items()))
        if not text and not calls and not self._may_be_empty():
            raise self.failures.refused(Refusal.EMPTY_BODY, f"no text and no tool call ({self.finish_reason})")
        estimate = Usage(self._input_estimate, max(self._outputs, -(-self._bytes // BYTES_A_TOKEN)), estimated=True)
        return Reply(
            text, calls, self.finish_reason, self.usage or estimate, self._identity["model"], self.fingerprint,
            self._identity["id"],
        )  # fmt: skip

    def _may_be_empty(self) -> bool:
        """A filter leaves nothing; reasoning may have used up the tokens that were allowed."""
        return self.finish_reason == "content_filter" or (self.finish_reason == "length" and self._outputs > 0)

    def _tool_call(self, index: int, draft: _Draft) -> ToolCall:
        """Arguments that were cut off are no JSON. Some servers send nothing at all where there are none."""
        arguments = _paired("".join(draft.arguments)).strip() or "{}"
        if not draft.name or not _is_object(arguments):
            told = f"of {draft.name}" if draft.name else "without a name"
            raise self.failures.refused(Refusal.TRUNCATED_TOOL_CALL, f"tool call {index} {told} is no whole call")
        return ToolCall(draft.id or f"call_{index}", draft.name, arguments)


def _is_object(text: str) -> bool:
    def refuse(constant: str) -> object:
        raise ValueError(constant)

    try:
        return isinstance(json.loads(text, parse_constant=refuse), dict)
    except (ValueError, RecursionError):
        return False


def _paired(text: str) -> str:
    """Put surrogate pairs together that were cut into two pieces: servers in JavaScript cut there."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


@dataclass(frozen=True, slots=True)
class Dialect:
    """One wire format."""

    path: str
    """Below the base URL."""
    headers: Mapping[str, str]
    authorise: Callable[[str], Mapping[str, str]]
    """The headers that carry the key."""
    body: Callable[[str, Messages, dict[str, object]], Fields]
    """Model, messages and merged parameters to the body. Raises InputError."""
    answer: Callable[[Failures, int], Answer]
