"""Tools that are programs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from workers.processes.commands import CommandError, Finished, Limits, fill, passed_on, run_limited
from workers.processes.machine import machine_error
from workers.programs import fault_of_absence
from workers.tools.text import json_of
from workers.tools.values import Answer, Order, SilenceError
from workers.workspace import suite_environment

__all__ = ["NOTHING_DONE", "ProgramTool"]

NOTHING_DONE: Final = 75
"""`EX_TEMPFAIL`: the exit code by which a program says that it failed and has done nothing."""


@dataclass(frozen=True, slots=True)
class ProgramTool:
    """A program: the arguments as JSON on its input, what it prints is the result.

    It runs in the run's workspace where the run's holder calls it, else in an empty directory. Exit code 0: done. 75:
    failed, and nothing was done. Any other end leaves open what it has done.
    """

    command: tuple[str, ...]
    env: tuple[str, ...]
    values: Mapping[str, str]
    """What `{name}` stands for beside the call's own arguments."""
    limits: Limits
    timeout: float

    async def run(self, order: Order) -> Answer:
        """Make the call. Raises `SilenceError`, and `MachineError` when nothing was started here."""
        if order.context.workspace is not None:
            return await self._in(order.context.workspace.path, order)
        # What it leaves may not be removable: litter, and no reason to lose what it said.
        try:
            empty = tempfile.TemporaryDirectory(prefix="evalbus-tool-", ignore_cleanup_errors=True)
        except OSError as error:
            raise machine_error(f"no directory for a program: {error.strerror or error}") from error
        with empty:
            return await self._in(Path(empty.name), order)

    async def _in(self, directory: Path, order: Order) -> Answer:
        own = {**self.values, "workspace": str(directory)}
        given = {name: value if isinstance(value, str) else json_of(value) for name, value in order.args.items()}
        argv = fill(self.command, {**given, **own})
        if any("\0" in part for part in argv):
            return Answer(False, "an argument holds a NUL character")
        try:
            finished = await run_limited(
                argv,
                cwd=directory,
                stdin=json_of(order.args).encode(),
                env={**suite_environment(own), **passed_on(self.env), **_told(order)},
                timeout=self.timeout,
                limits=self.limits,
            )
        except CommandError as error:  # it was never started
            if (fault := fault_of_absence(argv[0])) is not None:
                raise fault from error
            return Answer(False, str(error))
        if finished.ok and not finished.truncated:
            return Answer(True, finished.stdout.decode("utf-8", "replace"), order.context.key)
        if finished.exit_code == NOTHING_DONE:
            return Answer(False, _said(finished) or "nothing was done")
        raise SilenceError("\n".join(part for part in (finished.outcome, _said(finished)) if part))


def _told(order: Order) -> dict[str, str]:
    context = order.context
    told = {"EVALBUS_PLANE": context.plane.value, "EVALBUS_RUN": context.run}
    if context.key:
        told["EVALBUS_IDEMPOTENCY_KEY"] = context.key
    if context.undoes is not None:
        told["EVALBUS_UNDOES"] = context.undoes
    return told


def _said(finished: Finished) -> str:
    """Both outputs: of a test run that fails, either may hold what one wants to know."""
    said = (finished.stdout.decode("utf-8", "replace"), finished.stderr.decode("utf-8", "replace"))
    return "\n".join(text.rstrip("\n") for text in said if text.strip())
