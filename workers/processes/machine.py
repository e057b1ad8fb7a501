"""What is this machine's doing, and neither the candidate's nor the suite's: its disk, its open files, what is on it.

An evaluation tells a candidate's failure by an error, and a machine fails by errors as well. A disk that is full fails
at once, and so the machine that has it takes the next run, and the one after: one of fifty eats a whole batch, as holes
or, where a test's exit code says no more than "not 0", as verdicts. So whoever meets an error asks here whose it is. A
`MachineError` goes past everything that makes holes, to the consumer, which hands the run back and rests
(`workers.processes.breaker`).

What stands in a list below is the system's word for a machine that takes no more. What does not (no such file, not
permitted) may be anybody's, and is judged where it is known which directory it was about.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import tempfile
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

import tenacity

from bus.errors import ArtifactNotFound, MachineError, ProcessSpent
from bus.port import Runtime
from workers.usercode import UserCodeError

__all__ = [
    "OF_ANY_CODE",
    "OF_ITS_OWN",
    "OF_THE_MACHINE",
    "Disks",
    "fault_of",
    "insisted",
    "last_word",
    "let_go",
    "machine_error",
    "spent",
]

T = TypeVar("T")

OF_THE_MACHINE: Final = frozenset(
    {
        errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE, errno.ENODEV, errno.ENXIO,
        errno.EMFILE, errno.ENFILE, errno.ENOMEM,
    }
)  # fmt: skip
"""What a system says that takes no more, whoever asked. On another machine the same run may do as it likes."""

OF_ANY_CODE: Final = OF_THE_MACHINE - {errno.EROFS, errno.ENODEV, errno.ENXIO}
"""Likewise, of what code of a suite's opened, wherever that is: that there is no terminal, or that a part of the system
is only to be read, is so on every machine. `Disks` knows of its own whether they may be written to."""

OF_ITS_OWN: Final = OF_THE_MACHINE | {errno.EACCES, errno.EPERM}
"""Likewise, of a directory that a role made for itself and nobody else has touched."""

_ROOM: Final = 4 * 2**20
"""Bytes that must be free where runs work: with less, the next file of somebody's does not fit."""
_PROBE: Final = 2**20
"""Bytes that are written to find out whether a disk takes any."""
_SPARE: Final = 16
"""Files that a process must be able to open: a connection, a script, a workspace. One with fewer drives no run."""
_CHAIN: Final = 20
"""Errors behind each other that are looked at: a chain may be made into a ring."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # seconds between two tries


def machine_error(why: str, recheck: Callable[[], Awaitable[None]] | None = None) -> MachineError:
    """One line about this machine; `recheck` raises as long as it holds."""
    error = MachineError(why)
    error.recheck = recheck
    return error


def fault_of(error: BaseException, numbers: frozenset[int] = OF_THE_MACHINE) -> MachineError | None:
    """The machine's fault that an error tells of, or one that it was raised from; None where none does."""
    for one in _chain(error):
        if isinstance(one, MachineError):
            return one
        if isinstance(one, OSError) and one.errno in numbers:
            where = "" if one.filename is None else f"{os.fsdecode(one.filename)}: "
            return machine_error(f"{where}{os.strerror(one.errno or 0)}")
    return None


def last_word(fault: MachineError, of_code: str) -> tuple[str, str]:
    """Why a run that no machine can do is a hole, and in which words. `of_code`: where the suite's code raised it."""
    if isinstance(fault.__cause__, UserCodeError):
        return of_code, fault.__cause__.placed
    return "artifact_missing" if isinstance(fault, ArtifactNotFound) else "machine_error", str(fault)


def spent(error: BaseException | None = None) -> ProcessSpent | None:
    """Whether this very process has no file left to open; None when it has.

    Of all that is wrong with a machine, this alone is mended by the end of the process, and by nothing else: who waits
    for a leak to close waits for ever. What only the collector of cycles still holds is closed first, and what only
    `error` holds: a frame that it came through has the files that were open there.
    """
    if _has_spare():
        return None
    if error is not None:
        let_go(error)
    gc.collect()
    if _has_spare():
        return None
    return ProcessSpent("all files that this process may open are open: what a suite's code opens, it must close")


def let_go(error: BaseException) -> None:
    """Forget what was in the frames that an error came through, open files among it. Its text and its places stay."""
    for one in _chain(error):
        traceback.clear_frames(one.__traceback__)


def _has_spare() -> bool:
    taken: list[int] = []
    try:
        while len(taken) < _SPARE:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno != errno.EMFILE
    finally:
        for one in taken:
            os.close(one)
    return True


def _chain(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    for _ in range(_CHAIN):
        if found is None:
            return
        yield found
        if isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        else:
            found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


class Disks:
    """The directories in which this process's runs work."""

    def __init__(self, places: Sequence[Path]) -> None:
        """`places` need not be there yet. That of temporary files is one, too."""
        self._places = places

    def full(self) -> str:
        """Which has no room, in one clause; empty when all have. A few system calls."""
        for place in self._all():
            try:
                found = os.statvfs(_nearest(place))
            except OSError as error:
                return f"{place}: {error.strerror}"
            if found.f_flag & os.ST_RDONLY and place in self._places:  # not every run wants temporary files
                return f"{place}: its disk can only be read"
            if found.f_blocks and found.f_bavail * found.f_frsize < _ROOM:
                return f"{place}: {found.f_bavail * found.f_frsize:,} bytes are free on its disk"
            if found.f_files and not found.f_favail:
                return f"{place}: its disk takes no more files"
        return ""

    def check(self) -> None:
        """Raises MachineError when one is full: for who has a failure in hand that may come of it."""
        if why := self.full():
            raise machine_error(why, self.recheck)

    async def recheck(self) -> None:
        """Write to each and remove it. Raises MachineError when that cannot be done."""
        await asyncio.to_thread(self._write)

    def _write(self) -> None:
        for place in self._all():
            try:
                place.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=place) as file:
                    file.write(bytes(_PROBE))
                    file.flush()
            except OSError as error:
                raise machine_error(f"{place}: {error.strerror or error}", self.recheck) from error
        self.check()

    def _all(self) -> Iterator[Path]:
        yield from self._places
        yield Path(tempfile.gettempdir())


def _nearest(place: Path) -> Path:
    """The directory itself, or the first above it that is there."""
    while not place.exists() and place != place.parent:
        place = place.parent
    return place


async def insisted(runtime: Runtime, seconds: float, call: Callable[[], Awaitable[T]]) -> T:
    """What a call gives, tried again for so long while the machine is in its way. Raises what the last try raised.

    What was sealed a moment ago may not be seen everywhere yet, a store may be restarting: who gives up at once gives
    up a run that is done but for this.
    """
    async for attempt in tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(MachineError),
        wait=tenacity.wait_random_exponential(multiplier=_FIRST_PAUSE, max=_LONGEST_PAUSE),
        stop=tenacity.stop_after_delay(seconds),
        sleep=runtime.sleep,
        reraise=True,
    ):
        with attempt:
            return await call()
    raise AssertionError("unreachable")
