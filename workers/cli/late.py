"""Commands that are made ready when they are called.

Typer reads the signature of every command before it runs any, and so every command paid a tenth of a second for all the
others. Here a group knows of its commands what its help and a shell's completion show, the name and the first sentence;
the one that is called is made ready then.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

__all__ = ["late_commands"]


def late_commands(
    functions: Mapping[str, Callable[..., None]], sections: Mapping[str, Sequence[str]], others: str
) -> type[TyperGroup]:
    """The class of a group with these commands, by their names.

    `sections`: title to names, as the group's help lists them. `others`: the title under which it lists what it is
    given otherwise.
    """

    class LateCommands(TyperGroup):
        def __init__(self, *, commands: dict[str, Any], **rest: Any) -> None:  # noqa: ANN401 - typer's, passed on
            named = {name: TyperCommand(name, help=inspect.getdoc(made)) for name, made in functions.items()}
            super().__init__(commands={**named, **commands}, **rest)

        def make_context(self, *given: Any, **rest: Any) -> Any:  # noqa: ANN401 - likewise
            with _reader_may_leave():  # of the help, or of the version
                return super().make_context(*given, **rest)

        def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - likewise
            try:
                with _reader_may_leave():
                    return super().invoke(ctx)
            except KeyboardInterrupt:  # while the command still imports what it needs; later each has its own words
                print("evalbus: interrupted", file=sys.stderr)
                raise typer.Exit(130) from None

        def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - likewise
            given = [name for name in self.commands if name not in functions]
            listed = {title: [*names, *(given if title == others else ())] for title, names in sections.items()}
            width = max(map(len, self.commands))
            room = formatter.width - 6 - width  # a command's first sentence, cut as click does
            for title, names in listed.items():
                with formatter.section(title):
                    formatter.write_dl(
                        [(name.ljust(width), self.commands[name].get_short_help_str(room)) for name in names]
                    )

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer names the types privately
            name, command, others = super().resolve_command(ctx, args)
            if name is not None and name in functions:
                command = _made_ready(name, functions[name])
            return name, command, others

    return LateCommands


@contextlib.contextmanager
def _reader_may_leave() -> Iterator[None]:
    """`evalbus --help | head -1`: click ends it with 1, which is what a gate that failed ends with."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # also for the flush at the very end
        raise typer.Exit(0) from None


def _made_ready(name: str, function: Callable[..., None]) -> Any:  # noqa: ANN401 - likewise
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    alone.command(name)(function)
    made = get_command(alone)
    for each in made.params:
        if each.param_type_name == "argument" and each.metavar is None:
            each.metavar = f"{each.name or ''}{'…' if each.nargs == -1 else ''}".upper()  # as the documents have them
    return made
