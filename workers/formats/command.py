"""`evalbus convert`: which format a file is in, and the suite that is written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from bus.errors import InputError
from workers.formats import openai_evals, promptfoo

__all__ = ["FORMATS", "ConvertOptions", "convert"]

FORMATS: Final = ("promptfoo", "openai-evals")


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """What the command line says."""

    source: str
    """`FORMAT:FILE`, or a file whose name says which it is."""
    directory: Path
    provider: str | None = None
    model: str | None = None
    grader: str | None = None
    eval_name: str | None = None


def convert(options: ConvertOptions, console: Console) -> None:
    """Convert and write. Raises InputError; then nothing was written."""
    kind, path = _kind(options.source)
    if not path.is_file():
        raise InputError("is not a file" if path.exists() else "no such file", file=path)
    unused = {"--class": options.grader, "--eval": options.eval_name} if kind == "promptfoo" else {}
    unused |= {"--provider": options.provider} if kind == "openai-evals" else {}
    for option, value in unused.items():
        if value is not None:
            raise InputError(f"{option} is not for {kind}")
    if kind == "promptfoo":
        made = promptfoo.convert(path, options.provider, options.model)
    else:
        made = openai_evals.convert(path, options.grader, options.eval_name, options.model)
    made.write(options.directory)
    count = f"{len(made.cases):,} case{'s' * (len(made.cases) != 1)}"
    console.print(f"{options.directory}: {count}", markup=False, soft_wrap=True)
    if made.left_out:
        console.print(f"left out: {', '.join(made.left_out)}", markup=False, soft_wrap=True)
    console.print(f"next: evalbus run {options.directory}", markup=False, soft_wrap=True)


def _kind(source: str) -> tuple[str, Path]:
    head, colon, rest = source.partition(":")
    if colon and head in FORMATS:
        return head, Path(rest)
    path = Path(source)
    if path.name.startswith("promptfooconfig.") and path.suffix in (".yaml", ".yml", ".json"):
        return "promptfoo", path
    remedy = "write " + " or ".join(f"{name}:{path.name or 'FILE'}" for name in FORMATS)
    raise InputError("its name does not say which format it is in", file=path, remedy=remedy)
