"""The prompts of a promptfoo configuration, and how templates are filled in.

promptfoo's templates are Nunjucks, whose common part Jinja2 reads alike. A variable that a test does not have is an
error here, where promptfoo would fill in nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import jinja2
import jinja2.sandbox

from workers.formats.yaml_file import Place, YamlFile
from workers.rows import read_text

__all__ = ["Prompt", "filled", "read_prompts"]


class _Missing(jinja2.Undefined):
    """May be asked whether it is there, and is nothing to be written."""

    __slots__ = ()
    __str__ = __iter__ = __len__ = jinja2.Undefined._fail_with_undefined_error


_TEMPLATES: Final = jinja2.sandbox.SandboxedEnvironment(undefined=_Missing, keep_trailing_newline=True)
_TEMPLATES.filters["dump"] = lambda value: json.dumps(value, ensure_ascii=False)


def filled(template: str, variables: Mapping[str, object]) -> str:
    """A template with variables filled in. Raises ValueError with a clause."""
    try:
        return _TEMPLATES.from_string(template).render(variables)
    except jinja2.UndefinedError as error:
        raise ValueError(f"needs a variable that the test does not have: {error.message}") from None
    except jinja2.TemplateError as error:
        raise ValueError(f"is no template that can be read: {error.message}") from None
    except (TypeError, ValueError, ArithmeticError, LookupError, RecursionError) as error:
        raise ValueError(f"its template fails: {error}") from None


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt, not filled in; `number` from 1."""

    file: YamlFile
    place: Place
    number: int
    label: str
    text: str

    def filled(self, variables: Mapping[str, object]) -> object:
        """A text, or the list of messages that it is the JSON of. Raises InputError."""
        try:
            messages = _messages(self.text)
            if messages is not None:  # filled in after it is parsed: a quote in a variable breaks nothing
                return [_leaves(message, variables) for message in messages]
            text = filled(self.text, variables)
            return _messages(text) or text
        except ValueError as error:
            raise self.file.wrong(self.place, str(error)) from None


def _messages(text: str) -> list[Mapping[str, object]] | None:
    if not text.lstrip().startswith("["):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, list) and value and all(isinstance(one, Mapping) and "role" in one for one in value):
        return value
    return None


def _leaves(value: object, variables: Mapping[str, object]) -> object:
    if isinstance(value, str):
        return filled(value, variables)
    if isinstance(value, Mapping):
        return {key: _leaves(one, variables) for key, one in value.items()}
    return [_leaves(one, variables) for one in value] if isinstance(value, list) else value


def read_prompts(file: YamlFile, written: object) -> list[Prompt]:
    """Every prompt, those of files included. Raises InputError."""
    listed = [written] if isinstance(written, str | Mapping) else written
    if not isinstance(listed, list) or not listed:
        raise file.wrong(("prompts",), "there is no prompt")
    found: list[Prompt] = []
    for number, one in enumerate(listed):
        place: Place = ("prompts", number) if isinstance(written, list) else ("prompts",)
        label = ""
        if isinstance(one, Mapping):
            if unknown := sorted(one.keys() - {"id", "raw", "label"}):
                raise file.wrong((*place, unknown[0]), "is not supported")
            label, one = str(one.get("label", "")), one.get("raw", one.get("id"))  # noqa: PLW2901 - its text
        if not isinstance(one, str) or not one:
            raise file.wrong(place, "must be a text, or name a file")
        for text in _texts(file, place, one):
            at = len(found) + 1
            found.append(Prompt(file, place, at, label or f"prompt {at}", text))
    return found


def _texts(file: YamlFile, place: Place, written: str) -> list[str]:
    """The prompts that an entry stands for: itself, or those of the files that it names."""
    names = written.removeprefix("file://")
    if names == written and not (names.endswith((".txt", ".json", ".md")) and " " not in names):
        return [written]
    paths = sorted(file.path.parent.glob(names)) if "*" in names else [file.path.parent / names]
    found: list[str] = []
    for path in paths:
        match path.suffix:
            case ".txt":
                found += [part.strip() for part in re.split(r"(?m)^---[ \t]*$", read_text(path, path)) if part.strip()]
            case ".json" | ".md":
                found.append(read_text(path, path))
            case suffix:
                raise file.wrong(
                    place, f"a prompt from a file ending in {suffix!r} is not supported", "use .txt, .md or .json"
                )
    if not found:
        raise file.wrong(place, f"no file {names}")
    return found
