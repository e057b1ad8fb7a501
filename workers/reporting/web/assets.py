"""The templates, the style sheet and the script. The page's policy names the last two by their hashes: nothing else
can ever style or run there, whatever a case, a transcript or a solver says."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from workers.explaining import svg
from workers.reporting.web import words

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["Asset", "environment", "policy", "script", "style"]

_HERE: Final = Path(__file__).parent / "assets"
_STYLES: Final = ("base.css", "report.css", "runs.css", "print.css")
_SCRIPTS: Final = ("format.js", "theme.js", "timeline.js", "runs.js", "details.js", "drawer.js", "main.js")


@dataclass(frozen=True, slots=True)
class Asset:
    """Text that stands in the page, between its tags and byte for byte."""

    text: str

    @property
    def source(self) -> str:
        """How a content security policy names it."""
        digest = hashlib.sha256(self.text.encode()).digest()
        return f"'sha256-{base64.b64encode(digest).decode()}'"


def style() -> Asset:
    """All style sheets, those of the explain pictures included."""
    return Asset(svg.CSS + "".join(_read(name) for name in _STYLES))


def script() -> Asset:
    """The page's script: its files in one scope."""
    return Asset('(() => {\n"use strict";\n' + "".join(_read(name) for name in _SCRIPTS) + "})();\n")


def policy() -> str:
    """What the page may do: show itself, with its own style and script. It can reach nothing."""
    return (
        f"default-src 'none'; style-src {style().source}; script-src {script().source}; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def environment() -> Environment:
    """The templates. Every text in them is escaped, and shown as `words.visible` has it."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - for those who report
    from markupsafe import Markup  # noqa: PLC0415

    def shown(value: object) -> object:
        return words.visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    made = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"count": words.count, "ms": words.duration, "share": words.share, "instant": words.instant}
    return made


def _read(name: str) -> str:
    return (_HERE / name).read_text("utf-8")
