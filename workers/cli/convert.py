"""The commands that write a suite: to begin with, and of what was written for another tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workers.cli.common import console, guard, quiet_logs

__all__ = ["convert", "init"]


def init(
    directory: Annotated[Path, typer.Argument(help="Where the suite is written; it must not be there yet.")],
    model: Annotated[bool, typer.Option("--model", help="An agent that asks a model and calls a tool.")] = False,
) -> None:
    """Write a small suite to begin with. It runs as it is, and says what its fields are for.

    evalbus init arithmetic && evalbus run arithmetic
    """
    from workers.formats.starting import begin  # noqa: PLC0415

    quiet_logs()
    guard(lambda: begin(directory, console(), model=model))


def convert(
    source: Annotated[
        str, typer.Argument(help="promptfoo:FILE.yaml or openai-evals:FILE; promptfooconfig.yaml needs no prefix.")
    ],
    directory: Annotated[Path, typer.Argument(help="Where the suite is written; it must not be there yet.")],
    provider: Annotated[str | None, typer.Option(help="promptfoo: which of several providers, by id or label.")] = None,
    model: Annotated[
        str | None, typer.Option(help="The model's name; default: the provider's, or EVALBUS_MODEL.")
    ] = None,
    grader: Annotated[
        str | None, typer.Option("--class", help="openai-evals: how a file of samples is compared: match, includes, …")
    ] = None,
    eval_name: Annotated[
        str | None, typer.Option("--eval", help="openai-evals: which eval of a registry file.")
    ] = None,
) -> None:
    """Write a suite for an evaluation that another tool has. What cannot be converted is named, and nothing is written.

    evalbus convert promptfooconfig.yaml suite && evalbus run suite

    evalbus convert openai-evals:samples.jsonl suite --class includes --model gpt-4.1-mini
    """
    from workers.formats.command import ConvertOptions  # noqa: PLC0415
    from workers.formats.command import convert as write  # noqa: PLC0415

    quiet_logs()
    options = ConvertOptions(source, directory, provider, model, grader, eval_name)
    guard(lambda: write(options, console()))
