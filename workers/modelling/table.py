"""The `[model]` table of a suite: which model answers, over which wire, and how much of it may be asked for.

Which endpoint and which model is part of what a score is bound to, wherever it is written: in the file, or in the
environment of whoever makes the batch. It is looked up once, when the suite is loaded (`ModelTable.target`); a process
whose environment names another model is refused and answers nothing in its place.

The key is part of nothing. The file names the environment variable that holds it; a key in the file itself is refused,
and no message repeats it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from bus.errors import InputError
from bus.types import MAX_INT
from workers.secret_files import FILE, secret
from workers.tables import Count, Flag, Natural, Seconds, Table, Text

__all__ = ["MOST_TOKENS", "Api", "ModelTable", "Target", "other_model"]

MOST_TOKENS: Final = 1_000_000_000
"""Of one answer: no model gives so many, and what a batch sets aside for its calls must remain a number."""

Api = Literal["chat", "completions", "anthropic"]

_URL_VARIABLES: Final[Mapping[Api, tuple[str, ...]]] = {
    "chat": ("EVALBUS_MODEL_URL", "OPENAI_BASE_URL"),
    "completions": ("EVALBUS_MODEL_URL", "OPENAI_BASE_URL"),
    "anthropic": ("EVALBUS_MODEL_URL", "ANTHROPIC_BASE_URL"),
}
_KEY_VARIABLE: Final[Mapping[Api, str]] = {
    "chat": "OPENAI_API_KEY",
    "completions": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
}
_NAME_VARIABLE: Final = "EVALBUS_MODEL"
_KEY_FIELDS: Final = frozenset(
    {"key", "api_key", "apikey", "token", "secret", "password", "authorization", "x-api-key"}
)
_SET_BY_US: Final = frozenset({"model", "messages", "prompt", "stream"})
_NO_KEYS_HERE: Final = (
    "a key does not belong in a suite file; export it in the environment of the workers, and name the variable: "
    'key_env = "OPENAI_API_KEY"'
)


def _names_a_key(name: object) -> bool:
    return isinstance(name, str) and name.lower().replace("-", "_") in _KEY_FIELDS


def _key_variable(name: str) -> str:
    # Not as `tables.Variables` says it: what stands here by mistake is the key, and would be in the message.
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", name):
        raise ValueError(f"this is not the name of an environment variable; {_NO_KEYS_HERE}")
    if re.fullmatch(r"(?:sk|pk|key)_[A-Za-z0-9_]{16,}", name):
        raise ValueError(_NO_KEYS_HERE)
    return name


def _base_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError('base_url is not a URL (write it as "http://127.0.0.1:8080/v1")')
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError(f"base_url has more than a host and a path; {_NO_KEYS_HERE}")
    return url.rstrip("/")


def _billing_url(url: str) -> str:
    if "{request_id}" not in url:
        raise ValueError("billing_url has no {request_id} to be replaced")
    _base_url(url.replace("{request_id}", "x").partition("?")[0])
    return url


def _extra(written: dict[str, object]) -> dict[str, object]:
    if any(map(_names_a_key, written)) or any(map(_holds_a_key, written.values())):
        raise ValueError(_NO_KEYS_HERE)
    if taken := sorted(_SET_BY_US & written.keys()):
        raise ValueError(f"{taken[0]!r} cannot be set here, evalbus sets it")
    if written.get("n", 1) != 1:
        raise ValueError("'n' must be 1, a model call asks for one answer")
    return written


def _holds_a_key(value: object) -> bool:
    """A text under a key's name, however deep. A schema may well have a property that is called so."""
    if isinstance(value, Mapping):
        return any((_names_a_key(name) and isinstance(one, str)) or _holds_a_key(one) for name, one in value.items())
    return isinstance(value, list) and any(map(_holds_a_key, value))


def _one_or_many(written: object) -> object:
    return [written] if isinstance(written, str) else written


@dataclass(frozen=True, slots=True)
class Target:
    """Which model, and where: what the candidate is bound to."""

    base_url: str
    name: str

    def __str__(self) -> str:
        """`gemma-3 at http://127.0.0.1:8080/v1`."""
        return f"{self.name} at {self.base_url}"


class ModelTable(Table):
    """The model that `run.model` asks."""

    table = "model"

    api: Api = "chat"
    """OpenAI's chat stream, its older completions (for base models), or Anthropic's message stream."""
    base_url: Annotated[Text, AfterValidator(_base_url)] | None = None
    """Up to and with `/v1`. Else `EVALBUS_MODEL_URL`, then `OPENAI_BASE_URL` or `ANTHROPIC_BASE_URL`."""
    name: Text | None = None
    """The model's name at the endpoint. Else `EVALBUS_MODEL`."""
    key_env: Annotated[Text, AfterValidator(_key_variable)] | None = None
    """The variable that holds the key. Else `OPENAI_API_KEY` or `ANTHROPIC_API_KEY`, where that is set."""
    temperature: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] | None = None
    """The endpoint's own when left out; so are the four that follow."""
    max_tokens: Annotated[Count, Field(le=MOST_TOKENS)] | None = None
    """Of one answer. Without it a budget holds by expectation, and not to the token."""
    top_p: Annotated[float, Field(strict=True, gt=0, le=1)] | None = None
    """Sampling, as the endpoint means it."""
    stop: Annotated[tuple[Text, ...], BeforeValidator(_one_or_many), Field(min_length=1)] | None = None
    """Where an answer ends."""
    seed: Annotated[int, Field(strict=True)] | None = None
    """Handed to the endpoint; anthropic has none."""
    extra: Annotated[dict[str, object], AfterValidator(_extra)] = Field(default_factory=dict)
    """What else the body of each request has."""
    include_usage: Flag = True
    """Ask for the usage in the stream's last chunk. An endpoint that refuses the question can be spared it."""
    slots: Count = 8
    """Requests at the endpoint at once, of all workers together."""
    retries: Natural = 2
    """Of a run: answers that cannot be answers, such as an empty body. Then it is the hole `retries_exhausted`."""
    timeout: Seconds = 120.0
    """For one request, from the connection to the last byte."""
    first_token: Seconds = 60.0
    """Until the first piece of an answer."""
    idle: Seconds = 30.0
    """Between two pieces."""
    reclaim: Seconds = 60.0
    """How long the request of a worker that died may go on. Then its slot is free, and what it set aside is charged."""
    requests_per_minute: Count | None = None
    """Of all workers together."""
    tokens_per_minute: Count | None = None
    """Of all workers together."""
    retry_budget: Natural = 60
    """Requests a minute, of all workers together, that may be repeated after 429, 5xx or a cut. 0: none is."""
    expected: Annotated[int, Field(strict=True, ge=1, le=MAX_INT)] = 1_000
    """Tokens that one call is thought to cost, until calls were made."""
    billing_url: Annotated[Text, AfterValidator(_billing_url)] | None = None
    """With `{request_id}`: asked for the endpoint's own figure of a request that was given up, `{"billed": n}`.

    `"open": true` beside it says that the request is still being served, and the figure not the last.
    """

    @model_validator(mode="after")
    def _fits_its_api(self) -> ModelTable:
        if self.api == "anthropic" and self.seed is not None:
            raise ValueError("seed is not used by the api 'anthropic'")
        return self

    @model_validator(mode="before")
    @classmethod
    def _no_key(cls, written: object) -> object:
        if isinstance(written, Mapping) and any(map(_names_a_key, written)):
            raise ValueError(_NO_KEYS_HERE)
        return written

    @property
    def longest_answer(self) -> int | None:
        """Tokens, by whichever name the file limits an answer."""
        limits = (self.max_tokens, self.extra.get("max_completion_tokens"))
        return next((limit for limit in limits if isinstance(limit, int)), None)

    def target(self) -> Target:
        """Which model this process would ask. Raises `InputError` when neither file nor environment says it."""
        return Target(self._resolved_url(), self._resolved_name())

    @property
    def key_variable(self) -> str:
        """The variable of the environment that holds the key, where there is one."""
        return self.key_env or _KEY_VARIABLE[self.api]

    def key(self) -> str | None:
        """The key, of this process's environment. Raises `InputError` when one that the suite names is not there."""
        variable = self.key_variable
        key = secret(variable).strip()
        if not key and self.key_env is not None:
            remedy = f"export {variable} for the workers, or name the file that holds it in {variable}{FILE}"
            raise InputError(f"{self.table}.key_env: {variable} is not set", remedy=remedy)
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            raise InputError(f"{self.table}.key_env: what {variable} holds is not a key")
        return key or None

    def _url_variables(self) -> tuple[str, ...]:
        """Where the endpoint is looked for, in this order."""
        return _URL_VARIABLES[self.api]

    def _name_variables(self) -> tuple[str, ...]:
        """Where the model's name is looked for, in this order."""
        return (_NAME_VARIABLE,)

    def _resolved_url(self) -> str:
        if self.base_url is not None:
            return self.base_url
        variables = self._url_variables()
        for variable in variables:
            if url := os.environ.get(variable):
                try:
                    return _base_url(url)
                except ValueError as error:
                    raise InputError(f"{variable}: {error}") from None
        raise InputError(
            f"{self.table}.base_url: no endpoint is named, neither here nor in the environment",
            remedy=f'write base_url = "http://127.0.0.1:8080/v1", or set {variables[0]}',
        )

    def _resolved_name(self) -> str:
        variables = self._name_variables()
        found = [self.name or "", *(os.environ.get(variable, "").strip() for variable in variables)]
        name = next(filter(None, found), None)
        if name is None:
            raise InputError(
                f"{self.table}.name: no model is named, neither here nor in the environment",
                remedy=f'write name = "…", or set {variables[0]}',
            )
        return name


def other_model(batch: str, candidate: str, here: Target) -> InputError:
    """What is said to a process whose environment names another model than the batch is bound to (`candidate`)."""
    there = candidate.partition(" ")[2] or "none"
    return InputError(
        f"batch {batch!r} asks the model {there}, and this environment names {here}",
        remedy=f"set {_NAME_VARIABLE} and {_URL_VARIABLES['chat'][0]} as they were where the batch was made",
    )
