"""`docs/reference.md`: the command line, from the very texts that `--help` shows.

Options that most commands have stand once, at the head; a command's own table has the others.
"""

from __future__ import annotations

import enum
import inspect
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Union, get_args, get_origin

from typer.models import ArgumentInfo, OptionInfo
from typer.utils import get_params_from_function

from workers.cli import COMMANDS, app, server_app

__all__ = ["Named", "commands", "examples_of", "reference"]

_HEAD: Final = """\
# Reference: the command line

Every command, with what `evalbus COMMAND --help` says of it. What a suite can say is in [suite.md](suite.md), what one
wants to do is in the [index](README.md).

## Exit codes

| code | means |
|---|---|
{codes}

A command that has a meaning of its own for a code says so below. Wrong input is one line on standard error that names
the file, the line and the remedy; nothing has been started then.

## Shell completion

`evalbus --install-completion` sets it up for the shell that it is called from (bash, zsh, fish, PowerShell), from its
next start on; `evalbus --show-completion` prints it, to be put where you keep such things. A command or an option that
does not exist is answered with the nearest ones that do.

## Options of most commands

| option | |
|---|---|
{shared}

"""
_SHARED_BY: Final = 10
"""Commands from which on an option stands at the head and not with each of them."""


@dataclass(frozen=True, slots=True)
class Named:
    """One command; `name` is what is typed after `evalbus`."""

    name: str
    function: Callable[..., None]

    @property
    def paragraphs(self) -> list[str]:
        """Of its help, each as one line."""
        return [" ".join(paragraph.split()) for paragraph in (inspect.getdoc(self.function) or "").split("\n\n")]


def commands() -> Iterator[Named]:
    """Every command, those of groups among them, in the order of `evalbus --help`."""
    for function in COMMANDS:
        yield Named(function.__name__.rstrip("_"), function)
    for command in server_app.registered_commands:
        assert command.callback is not None
        yield Named(f"server {command.name}", command.callback)


def reference() -> str:
    """The page, without its first comment."""
    found = list(commands())
    rows = {one.name: _options(one) for one in found}
    times = Counter(row for of_one in rows.values() for row in of_one)
    shared = [row for row, often in times.items() if often >= _SHARED_BY]
    parts = [_HEAD.format(codes=_codes(), shared="\n".join(shared))]
    for one in found:
        own = [row for row in rows[one.name] if row not in shared]
        parts += [_section(one, own, [row for row in shared if row in rows[one.name]])]
    return "\n".join(parts)


def _codes() -> str:
    said = str(app.info.epilog).removeprefix("Exit codes: ").rstrip(".")
    return "\n".join("| {} | {} |".format(*one.split(maxsplit=1)) for one in said.split(" · "))


def _section(one: Named, own: Sequence[str], others: Sequence[str]) -> str:
    examples = examples_of(one)
    named = [given.name for given in _all_given(one) if not given.is_option]
    words = [f"## {one.name}", f"`{' '.join(('evalbus', one.name, *named, '[OPTIONS]'))}`"]
    words += [paragraph for paragraph in one.paragraphs if paragraph not in examples]
    words.append("```sh\n" + "\n".join(examples) + "\n```")
    if own:
        words.append("| argument or option | |\n|---|---|\n" + "\n".join(own))
    if others:
        names = ", ".join(f"{row.split()[1].rstrip('`')}`" for row in others)
        words.append(f"{'And' if own else 'It has'} {names}.")
    return "\n\n".join(words) + "\n"


def examples_of(one: Named) -> list[str]:
    """The paragraphs of a command's help that are a command line."""
    return [line for line in one.paragraphs if line.startswith(f"evalbus {one.name}") and not line.endswith(".")]


# --- arguments and options --------------------------------------------------------------------------------
# From the signatures, and not from what typer makes of them: its own words for a type change with its releases.


@dataclass(frozen=True, slots=True)
class _Given:
    name: str
    is_option: bool
    value: str
    said: str


def _options(one: Named) -> list[str]:
    return [f"| `{_cell(f'{given.name} {given.value}'.strip())}` | {_cell(given.said)} |" for given in _all_given(one)]


def _all_given(one: Named) -> list[_Given]:
    return [_given(param) for param in get_params_from_function(one.function).values()]


def _given(param: Any) -> _Given:  # noqa: ANN401 - typer's, with no public type
    info: OptionInfo | ArgumentInfo = param.default
    is_option = isinstance(info, OptionInfo)
    said = [" ".join((info.help or "").split())]
    if said[0] and said[0][-1] not in ".?!":
        said[0] += "."
    if info.default is ... and is_option:
        said.append("Must be given.")
    if info.envvar:
        said.append(f"Else the variable `{info.envvar}`.")
    default = getattr(info.default, "value", info.default)
    if isinstance(default, str | int | float) and not isinstance(default, bool) and is_option:
        said.append(f"Default: `{default}`.")
    if not is_option:
        name = info.metavar or f"{param.name.upper()}{'…' if _is_list(param.annotation) else ''}"
        return _Given(name if info.default is ... else f"[{name}]", is_option, "", " ".join(said))
    names = ", ".join(info.param_decls or (f"--{param.name.replace('_', '-')}",))
    return _Given(names, is_option, info.metavar or _value(param.annotation), " ".join(said))


def _is_list(annotation: Any) -> bool:  # noqa: ANN401 - likewise
    return get_origin(annotation) is list or any(map(_is_list, get_args(annotation)))


_VALUES: Final[Mapping[object, str]] = {int: "N", float: "NUMBER", Path: "PATH", bool: ""}


def _value(annotation: Any) -> str:  # noqa: ANN401 - likewise
    if get_origin(annotation) in (Union, types.UnionType, list):
        annotation = next(one for one in get_args(annotation) if one is not type(None))
        return _value(annotation)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return "|".join(str(one.value) for one in annotation)
    return _VALUES.get(annotation, "TEXT")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
