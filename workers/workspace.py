"""The directory that a run works in.

Each attempt gets a fresh one, made from the suite's template: nothing of an attempt that was killed half-way is
there to be found. What the solver does in it goes through `Workspace`: paths that lead out of it are refused,
commands run within the suite's limits.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import sys
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from bus.types import BatchId, Gen, RunId
from workers.archives import Packed, pack, unpack
from workers.cases import Case
from workers.processes.commands import Finished, Limits, fill, run_limited
from workers.processes.machine import OF_ITS_OWN, fault_of, machine_error
from workers.suite import Suite
from workers.trees import TreeError, copy_tree, ignored, remove_tree, tree_hash

__all__ = [
    "OutsideWorkspaceError",
    "Packed",
    "TreeError",
    "Workspace",
    "copy_of_case",
    "directory_of",
    "discard",
    "make_directory",
    "pack",
    "prepare",
    "remove_tree",
    "suite_environment",
    "tree_hash",
    "unpack",
]

DEFAULT_TIMEOUT: Final = 60.0
"""Seconds for one command that a solver runs without saying how long."""


class OutsideWorkspaceError(ValueError):
    """A path that is not inside the workspace."""


class Workspace:
    """A run's directory. Paths are relative to it, written with `/`."""

    def __init__(
        self,
        path: Path,
        limits: Limits | None = None,
        values: Mapping[str, str] | None = None,
        *,
        is_fresh: bool = True,
    ) -> None:
        """`path` is made when it is first asked for. `values` are what `{name}` stands for in a command's arguments.

        `is_fresh`: nothing is there that is not this attempt's; else it is removed before anybody is told of the path.
        """
        self._path = path.absolute()
        self.limits = limits or Limits()
        self._values, self._is_fresh = values or {}, is_fresh
        self._clearing = threading.Lock()
        self.is_known = False
        """Whether anybody was told where it is: nobody else has put anything there. Most runs never ask."""

    def __repr__(self) -> str:
        """`Workspace('/…/gen-1')`."""
        return f"Workspace({str(self._path)!r})"

    def _told(self) -> Path:
        self.is_known = True
        if not self._is_fresh:
            with self._clearing:  # of a solver's threads a late one would remove what the first has written
                if not self._is_fresh and self._path.exists():
                    remove_tree(self._path)
                self._is_fresh = True
        return self._path

    @property
    def path(self) -> Path:
        """The directory. It is made here and not before."""
        path = self._told()
        make_directory(path)
        return path

    @property
    def values(self) -> Mapping[str, str]:
        """What `{name}` stands for in a command's arguments."""
        return {"python": sys.executable, "workspace": str(self._told()), **self._values}

    def locate(self, relative: str) -> Path:
        """Where a path lies, links followed. Raises `OutsideWorkspaceError` if that is not inside.

        The check is against mistakes and against links left by earlier commands; a command that still runs could
        swap a directory afterwards, but none does: `run` returns when all of it is gone.
        """
        top = self.path.resolve()
        try:
            found = (top / relative).resolve()
        except RuntimeError:  # links in a circle; Python before 3.13 says so
            raise OutsideWorkspaceError(f"{relative!r} is links in a circle") from None
        if Path(relative).is_absolute() or not found.is_relative_to(top) or found == top:
            raise OutsideWorkspaceError(f"{relative!r} is not a path inside the workspace")
        return found

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Around what may change the directory by itself: where writes are fenced, that is told."""
        yield

    async def write(self, relative: str, content: str | bytes) -> None:
        """Write a whole file, text as UTF-8; its directories are made."""
        target = self.locate(relative)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)

    def read_text(self, relative: str) -> str:
        """A whole UTF-8 file. Raises `OSError`, `UnicodeDecodeError`."""
        return self.locate(relative).read_text(encoding="utf-8")

    def read_bytes(self, relative: str) -> bytes:
        """A whole file. Raises `OSError`."""
        return self.locate(relative).read_bytes()

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: str | bytes = b"",
        timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109 - told apart in the result, see run_limited
        env: Mapping[str, str] | None = None,
    ) -> Finished:
        """Run a command in the workspace, within the suite's limits; at most `timeout` seconds.

        `{python}`, `{workspace}`, `{suite}` and `{id}` in arguments are replaced. Raises `CommandError` when it
        cannot be started.
        """
        return await run_limited(
            fill(argv, self.values),
            cwd=self.path,
            stdin=stdin.encode() if isinstance(stdin, str) else stdin,
            env={**suite_environment(self.values), **(env or {})},
            timeout=timeout,
            limits=self.limits,
        )


def suite_environment(values: Mapping[str, str]) -> dict[str, str]:
    """What every command of a suite finds in its environment beside the usual."""
    return {"EVALBUS_SUITE": values["suite"]} if "suite" in values else {}


def prepare(suite: Suite, case: Case, path: Path) -> Workspace:
    """A run's workspace at `path`, from the suite's template; what was there before is removed.

    Without a table `[workspace]` there is nothing to make, and it is removed when the path is first asked for. Raises
    `TreeError`, and `MachineError` for a directory of its own that this machine cannot have.
    """
    table, limits, values = suite.workspace, suite.limits.of_commands, {"suite": str(suite.root), "id": case.id}
    if table is None:  # the disk is not asked for what nobody may ever look at
        return Workspace(path, limits, values, is_fresh=False)
    try:
        if path.exists():
            remove_tree(path)
        make_directory(path)
    except OSError as error:
        raise machine_error(f"{path}: {error.strerror or error}") from error
    if table.template is not None:
        try:
            copy_of_case(suite, table.template, case, path, table.ignore)
        except TreeError as error:
            if (fault := fault_of(error, OF_ITS_OWN)) is not None:
                raise fault from error
            raise
    return Workspace(path, limits, values)


def copy_of_case(suite: Suite, template: str, case: Case, into: Path, ignore: Sequence[str] = ()) -> None:
    """Copy a directory of the suite, `{id}` replaced by the case's, over another one. Raises `TreeError`.

    What is not part of the suite's digest is not copied: or two machines would run different things under one
    digest.
    """
    relative = template.replace("{id}", case.id)

    def left_out(name: str) -> bool:
        return ignored(name, ignore) or ignored(f"{relative}/{name}", suite.place.not_counted)

    copy_tree(suite.root / relative, into, left_out)


def directory_of(work: Path, batch: BatchId, run: RunId, gen: Gen) -> Path:
    """Where an attempt's workspace lies: `<work>/<batch>/<run>/<gen>`, names made fit for a file system."""
    return work.joinpath(_file_name(batch), _file_name(run), str(gen))


def make_directory(path: Path) -> None:
    """Make a directory and those that it lies in, unless it is there. Raises OSError."""
    for _ in range(100):  # an attempt that has just ended may remove one of these while it is empty: see `discard`
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            path.mkdir(parents=True, exist_ok=True)
            return
    path.mkdir(parents=True, exist_ok=True)


def discard(folder: Path, work: Path) -> None:
    """Remove an attempt's directory, and those that it leaves empty, up to `work`. Raises OSError."""
    remove_tree(folder)
    for above in folder.parents:
        if not above.is_relative_to(work):
            return
        try:
            above.rmdir()
        except OSError:  # another attempt is in it
            return


_is_file_name = re.compile(r"[A-Za-z0-9_#-][A-Za-z0-9._#-]{0,99}").fullmatch


def _file_name(text: str) -> str:
    """A file name for any text: itself where it can be, else with a digest that keeps it apart from others."""
    if _is_file_name(text):
        return text
    plain = re.sub(r"[^A-Za-z0-9_#-]+", "_", text)[:60]
    return f"{plain}~{hashlib.sha256(text.encode()).hexdigest()[:16]}"
