"""Commands that are made ready when they are called.

Typer reads the signature of every command before it runs any, and so every command paid a tenth of a second for all the
others. Here a group knows of its commands what its help and a shell's completion show, the name and the first sentence;
the one that is called is made ready then.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

__all__ = ["late_commands"]


def late_commands(functions: Mapping[str, Callable[..., None]]) -> type[TyperGroup]:
    """The class of a group with these commands, by their names; what the group is given otherwise comes after them."""

    class LateCommands(TyperGroup):
        def __init__(self, *, commands: dict[str, Any], **rest: Any) -> None:  # noqa: ANN401 - typer's, passed on
            named = {name: TyperCommand(name, help=inspect.getdoc(made)) for name, made in functions.items()}
            super().__init__(commands={**named, **commands}, **rest)

        def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - likewise
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt:  # while the command still imports what it needs; later each has its own words
                print("evalbus: interrupted", file=sys.stderr)
                raise typer.Exit(130) from None

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer names the types privately
            name, command, others = super().resolve_command(ctx, args)
            if name is not None and name in functions:
                command = _made_ready(name, functions[name])
            return name, command, others

    return LateCommands


def _made_ready(name: str, function: Callable[..., None]) -> Any:  # noqa: ANN401 - likewise
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    alone.command(name)(function)
    made = get_command(alone)
    for each in made.params:
        if each.param_type_name == "argument" and each.metavar is None:
            each.metavar = f"{each.name or ''}{'…' if each.nargs == -1 else ''}".upper()  # as the documents have them
    return made
