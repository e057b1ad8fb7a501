"""What a conversion comes to: a suite's directory, written whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bus.errors import InputError
from workers.suite import load_suite

__all__ = ["Converted", "write_suite"]


@dataclass(frozen=True, slots=True)
class Converted:
    """A suite that is not written yet."""

    source: Path
    """The file that it was made from."""
    settings: Mapping[str, object]
    """Fields of `suite.toml`: text, numbers, booleans, lists, and tables of these."""
    cases: Sequence[Mapping[str, object]]
    files: Mapping[str, str] = field(default_factory=dict)
    """Further files, by their names inside the directory."""
    left_out: Sequence[str] = ()
    """What the source says beside that, and this does not need: shown, so that nobody misses it."""

    def write(self, directory: Path) -> None:
        """Make the directory, and check that it is a suite. Raises InputError; then nothing is left of it."""
        write_suite(directory, self._texts(), self.source)

    def _texts(self) -> dict[str, str]:
        lines = "".join(f"{json.dumps(case, ensure_ascii=False)}\n" for case in self.cases)
        title = (
            f"# Made from {self.source.name} by `evalbus convert`. It is yours now: nothing reads that file again.\n\n"
        )
        return {
            **self.files,
            "cases.jsonl": lines,
            "suite.toml": title + _toml({"cases": "cases.jsonl", **self.settings}),
        }


def write_suite(directory: Path, texts: Mapping[str, str], source: Path) -> None:
    """Make a suite's directory of these files, whole or not at all. `source`: what they were made from, for messages.

    Raises InputError.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InputError("is there already, and not empty", file=directory, remedy="name a directory that is not there")
    if not directory.absolute().parent.is_dir():
        raise InputError("its directory does not exist", file=directory, remedy="create it, or name another")
    made = directory.absolute().with_name(f".{directory.absolute().name}-{secrets.token_hex(4)}")
    try:
        made.mkdir()
        for name, text in texts.items():
            (made / name).write_text(text, encoding="utf-8")
        load_suite(made)
        if directory.is_dir():
            directory.rmdir()
        made.rename(directory)
    except InputError as error:
        told = str(error).replace(f"{made}{os.sep}", "").replace(f"{made}: ", "")
        raise InputError(f"makes no suite: {told}", file=source) from None
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=directory) from None
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _toml(table: Mapping[str, object], name: str = "") -> str:
    """TOML of text, numbers, booleans, lists and tables. A text is written as JSON has it, which is TOML, too."""
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    lines = [f"{key} = {_value(value)}\n" for key, value in plain.items()]
    head = f"\n[{name}]\n" if name and (lines or not table) else ""
    tables = [
        _toml(value, f"{name}.{key}".removeprefix(".")) for key, value in table.items() if isinstance(value, Mapping)
    ]
    return head + "".join(lines) + "".join(tables)


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    # JSON escapes a lone DEL not; TOML wants it escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
