"""The directory of a suite: what of it counts, what it may name there, and the digest over all of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from bus.errors import InputError
from bus.types import Digest
from workers.cases import Case
from workers.declaration import Suite
from workers.trees import DIRECTORY, Entry, TreeError, hash_entries, ignored, walk

__all__ = ["NEVER_COUNTED", "SuiteTree", "digest_of"]

NEVER_COUNTED: Final = (
    ".git",
    ".hg",
    ".svn",
    ".evalbus",
    ".venv",
    "__pycache__",
    "*.pyc",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".hypothesis",
    ".DS_Store",
)
"""Patterns of what other tools put into a suite's directory: never a part of the suite."""


@dataclass(frozen=True, slots=True)
class SuiteTree:
    """The suite's directory, and what of it counts."""

    source: Path
    root: Path
    not_counted: tuple[str, ...]

    def path(self, field: str, relative: str) -> Path:
        """Something that the suite names: inside its directory, and part of its digest."""
        found = self.root / relative
        real = found.resolve()
        if not real.is_relative_to(self.root):
            raise InputError(
                f"{field}: {relative!r} is outside the suite directory",
                file=self.source,
                remedy="copy it in: the suite's digest covers that directory only",
            )
        if any(ignored(name, self.not_counted) for name in (relative, real.relative_to(self.root).as_posix())):
            raise InputError(f"{field}: {relative!r} is on the list of ignored files", file=self.source)
        return found

    def file(self, field: str, relative: str) -> Path:
        """A file that the suite names."""
        found = self.path(field, relative)
        if not found.is_file():
            raise InputError(f"{field}: no such file: {relative}", file=self.source)
        return found

    def directories(self, field: str, template: str | None, cases: tuple[Case, ...]) -> None:
        """A directory that the suite names, or one for each case when the name holds `{id}`."""
        if template is None:
            return
        for case in cases if "{id}" in template else cases[:1]:
            relative = template.replace("{id}", case.id)
            if ".." in relative.split("/") or relative.startswith("/"):
                raise InputError(f"{field}: the id of case {case.id!r} leads out of its directory", file=self.source)
            if not self.path(field, relative).is_dir():
                whose = f" for case {case.id!r}" if "{id}" in template else ""
                raise InputError(f"{field}: no directory {relative}{whose}", file=self.source)


def digest_of(declared: Suite, cases: tuple[Case, ...], files: SuiteTree) -> Digest:
    """By which a suite is known: of its files, and of what was declared. Raises InputError."""

    def entries() -> Iterator[Entry]:
        for entry in walk(files.root, files.not_counted):
            if entry.leads_out:
                raise InputError(
                    f"the link {entry.name} leads out of the suite directory",
                    file=files.source,
                    remedy="replace it by what it names, or put it on the suite's ignore list",
                )
            if entry.mode != DIRECTORY:  # an empty one does not survive version control
                yield entry

    try:
        tree = hash_entries(entries(), files.not_counted)
    except TreeError as error:
        raise InputError(str(error), file=files.source) from error
    except OSError as error:
        raise InputError(str(TreeError.from_os(error)), file=files.source) from error
    # A Python suite may read the environment and declare two different things from the same files.
    told = declared.model_dump(mode="json", exclude={"declared_cases"}, exclude_unset=True)
    inline = [] if isinstance(declared.declared_cases, str) else [asdict(case) for case in cases]
    whole = json.dumps([tree, files.source.name, told, inline], sort_keys=True)
    return Digest(hashlib.sha256(b"evalbus-suite 1\0" + whole.encode()).hexdigest())
