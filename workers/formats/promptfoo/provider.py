"""The provider of a promptfoo configuration as the `[model]` table of a suite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from workers.formats.yaml_file import Place, YamlFile

__all__ = ["chosen_model", "model_table"]

_PROVIDERS: Final[Mapping[str, str]] = {"openai": "chat", "anthropic": "anthropic"}
_URLS: Final[Mapping[str, str]] = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
_SETTINGS: Final[Mapping[str, str]] = {
    "temperature": "temperature", "max_tokens": "max_tokens", "top_p": "top_p", "seed": "seed", "stop": "stop",
    "apiBaseUrl": "base_url", "apiKeyEnvar": "key_env",
}  # fmt: skip
_EXTRA: Final = frozenset(
    {"response_format", "frequency_penalty", "presence_penalty", "reasoning_effort", "max_completion_tokens", "top_k"}
)


def chosen_model(file: YamlFile, whole: Mapping[str, object], wanted: str | None) -> dict[str, object]:
    """The table for the provider of that id or label, or for the only one. Raises InputError."""
    key = "providers" if "providers" in whole else "targets"
    written = whole.get(key)
    listed = [written] if isinstance(written, str | Mapping) else written
    if not isinstance(listed, list) or not listed:
        raise file.wrong((key,), "there is no provider", "name one, or give --model NAME")
    found = []
    for number, one in enumerate(listed):
        place: Place = (key, number) if isinstance(written, list) else (key,)
        found.append(_provider(file, place, one))
    named = [one for one in found if wanted is None or wanted in (one.id, one.label)]
    if len(named) != 1:
        names = ", ".join(one.label or one.id for one in found)
        problem = (
            f"there are {len(found)} providers ({names})" if wanted is None else f"{wanted!r} is none of them ({names})"
        )
        raise file.wrong((key,), problem, "a suite evaluates one: --provider NAME")
    return model_table(file, named[0].place, named[0].id, named[0].config)


@dataclass(frozen=True, slots=True)
class _Provider:
    """One provider, as it is written."""

    place: Place
    id: str
    label: str
    config: Mapping[str, object]


def _provider(file: YamlFile, place: Place, written: object) -> _Provider:
    if isinstance(written, str):
        return _Provider(place, written, "", {})
    if not isinstance(written, Mapping):
        raise file.wrong(place, "must be text or a mapping")
    if len(written) == 1 and "id" not in written:  # the older form: its id is the key
        name, inner = next(iter(written.items()))
        return _provider(file, (*place, name), {"id": name, **(inner if isinstance(inner, Mapping) else {})})
    if unknown := sorted(written.keys() - {"id", "label", "config"}):
        raise file.wrong((*place, unknown[0]), "of a provider is not supported")
    config = written.get("config") or {}
    if not isinstance(written.get("id"), str) or not isinstance(config, Mapping):
        raise file.wrong(place, "needs an id, and config as a mapping")
    return _Provider(place, str(written["id"]), str(written.get("label", "")), config)


def model_table(file: YamlFile, place: Place, provider: str, config: Mapping[str, object]) -> dict[str, object]:
    """The `[model]` table for a provider such as `openai:chat:gpt-4.1-mini`. Raises InputError."""
    house, _, rest = provider.partition(":")
    kind, _, name = rest.rpartition(":")
    apis = {"": _PROVIDERS.get(house), "chat": "chat", "completion": "completions", "messages": "anthropic"}
    api = apis.get(kind) if house in _PROVIDERS else None
    if api is None or not name:
        remedy = "write openai:[chat:|completion:]NAME or anthropic:[messages:]NAME, or give --model NAME"
        raise file.wrong(place, f"the provider {provider!r} is not supported", remedy)
    table: dict[str, object] = {"name": name, "base_url": _URLS[house], **({} if api == "chat" else {"api": api})}
    extra: dict[str, object] = {}
    for key, value in config.items():
        if key == "apiKey":
            raise file.wrong(
                (*place, "config", key), "a key does not belong in a file", "apiKeyEnvar: NAME_OF_A_VARIABLE"
            )
        if key in _SETTINGS:
            table[_SETTINGS[key]] = value
        elif key in _EXTRA:
            extra[key] = value
        else:
            raise file.wrong((*place, "config", key), "of a provider is not supported")
    return {**table, **({"extra": extra} if extra else {})}
