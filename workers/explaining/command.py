"""`evalbus explain` and `evalbus why`: what is shown, and where it goes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bus.errors import InputError
from workers.explaining import mermaid, page, svg, terminal
from workers.explaining.why import explained
from workers.files import check_writable, write_whole

if TYPE_CHECKING:
    from rich.console import Console

    from workers.explaining.reading import Told

__all__ = ["check_output", "show_picture", "show_words"]

_ENDINGS = (".svg", ".html", ".htm", ".mmd")


def check_output(output: Path | None) -> None:
    """Before anything is read. Raises InputError when the file's ending says nothing, or it cannot be written."""
    if output is None:
        return
    if output.suffix.lower() not in _ENDINGS:
        raise InputError("its ending names no kind of picture", file=output, remedy=f"use {', '.join(_ENDINGS)}")
    check_writable(output)


def show_picture(told: Told, console: Console, *, as_mermaid: bool, output: Path | None) -> None:
    """The picture on the screen, unless it is written to a file."""
    if output is not None:
        write_whole(output, _drawn(told, output.suffix.lower()))
    if as_mermaid:
        console.print(mermaid.draw(told.story), end="", soft_wrap=True, markup=False)
    elif output is None:
        terminal.show(told.story, console)
    else:
        console.print(f"wrote {output}", soft_wrap=True, markup=False)


def _drawn(told: Told, ending: str) -> str:
    if ending == ".svg":
        return svg.draw(told.story)
    if ending == ".mmd":
        return mermaid.draw(told.story)
    return page.draw(told.story, explained(told.story, told.detail))


def show_words(told: Told, console: Console) -> None:
    """The explanation, a clause a line."""
    for line in explained(told.story, told.detail):
        console.print(line, soft_wrap=True, markup=False)
