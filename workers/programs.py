"""Whether a program that a suite names is on this machine.

One that is missing fails as fast as a full disk does, on the one machine of fifty that was set up differently; by its
error it can't be told from a candidate's mistake. So it is looked for before anything of the batch is taken, and again
when one could not be started.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from bus.errors import InputError, MachineError
from workers.processes.commands import clean_environment
from workers.processes.machine import machine_error

__all__ = ["absent", "check_present", "fault_of_absence"]


def absent(program: str) -> bool:
    """Whether there is none of that name. False for what can't be known here: a path in a workspace, or a template."""
    if not program or "{" in program or ("/" in program and not Path(program).is_absolute()):
        return False
    return shutil.which(program, path=clean_environment(Path())["PATH"]) is None


def check_present(programs: Sequence[tuple[str, Sequence[str] | None]], file: Path) -> None:
    """`programs`: field and command of each, None where the suite names none. Raises InputError for one that is absent.

    `file`: the suite's.
    """
    for field, command in programs:
        if command and absent(command[0]):
            raise InputError(
                f"{field}: there is no program {command[0]!r} on this machine",
                file=file,
                remedy="install it, or see whether it is in PATH",
            )


def fault_of_absence(program: str, gone: Callable[[str], bool] = absent) -> MachineError | None:
    """The fault of a machine from which a program has gone; None where it is there."""
    if not gone(program):
        return None

    async def recheck() -> None:
        if gone(program):
            raise machine_error(f"there is no program {program!r} on this machine", recheck)

    return machine_error(f"there is no program {program!r} on this machine", recheck)
