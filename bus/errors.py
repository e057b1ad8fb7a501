"""What can go wrong, as exceptions. A refusal by a fence is not one of them: that is a value, a `Decision`.

EvalbusError                 one line for the user, and the exit code of the command line
├── InputError         (2)   a suite, case, file, option or batch name that cannot be used
│   ├── BatchMissing         no batch has the name that was given, or none can have it
│   └── ArtifactMissing      nobody here knows of a store that has these bytes
├── MachineError       (2)   what this machine cannot do now, and another may
│   ├── ArtifactUnreachable  its way to the artifact store is closed, or the store is full
│   └── ArtifactNotFound     the store has not got these bytes (it is an ArtifactMissing, too)
├── ProcessSpent      (71)   this process has no file left to open; one that is started anew has
├── ServerError        (4)
│   ├── ServerUnreachable    no answer from the server: the outcome of what was sent is unknown
│   ├── ServerUnfit          it answers, but cannot carry a batch (version, eviction, password …)
│   └── ReplyError           it answered one command with an error
└── ViolationError     (5)   replay, conform or a check found that an invariant does not hold
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

__all__ = [
    "ArtifactMissing",
    "ArtifactNotFound",
    "ArtifactUnreachable",
    "BatchMissing",
    "EvalbusError",
    "InputError",
    "MachineError",
    "ProcessSpent",
    "ReplyError",
    "ServerError",
    "ServerUnfit",
    "ServerUnreachable",
    "ViolationError",
]


class EvalbusError(Exception):
    """Base of all errors that a user may see. `str(error)` is one line."""

    exit_code = 2


class InputError(EvalbusError):
    """Wrong input. Names the file, the line or field, and the remedy."""

    exit_code = 2

    def __init__(
        self,
        problem: str,
        *,
        file: Path | str | None = None,
        line: int | None = None,
        remedy: str | None = None,
    ) -> None:
        """`problem` is what is wrong; `file` and `line` (from 1) are where; `remedy` is what to do."""
        self.problem, self.file, self.line, self.remedy = problem, file, line, remedy
        place = "" if file is None else f"{file}:{line}: " if line is not None else f"{file}: "
        text = f"{place}{problem}" + (f" ({remedy})" if remedy else "")
        super().__init__(" ".join(text.split()))


class BatchMissing(InputError):
    """No batch here has this name, or none can have it."""

    def __init__(self, named: str, problem: str, *, remedy: str | None = None) -> None:
        """`named`: as the user wrote it."""
        self.named = named
        super().__init__(problem, remedy=remedy)


class NewerBatch(InputError):
    """A batch that declares what this release does not know: to serve it, or to show it, would be a guess."""

    def __init__(self, batch: str) -> None:
        """`batch`: its name."""
        super().__init__(
            f"batch {batch!r} was declared by another release of evalbus, in a way that this one does not know",
            remedy="use that one, or a newer",
        )


class ArtifactMissing(InputError):
    """No store that is known here has these bytes: none was named, or a server forgot them with its last moments."""


class MachineError(EvalbusError):
    """What this machine cannot do now: no room on its disk, no file left to open, no way to what it needs.

    It says nothing of a candidate, a suite or a batch. So no verdict and no hole comes of it: who meets it lets others
    do the work, and takes none until `recheck` says that it can again.
    """

    recheck: Callable[[], Awaitable[None]] | None = None
    """Raises while it still holds. None: only another try can tell."""
    seen = False
    """It did so, when it was asked at once."""


class ProcessSpent(EvalbusError):
    """All files that this process may have open are taken, by code that closes none: it gets no better by waiting."""

    exit_code = 71


class ArtifactUnreachable(InputError, MachineError):
    """The artifact store can't be read or written from here. Whether it has the bytes, and which, nobody knows."""


class ArtifactNotFound(ArtifactMissing, MachineError):
    """The store answers, and has not got these bytes: they are on their way, or it is another one than the writer's."""


class ServerError(EvalbusError):
    """The server cannot be used."""

    exit_code = 4


class ServerUnreachable(ServerError):
    """No answer. What was in flight may or may not have been applied: send the same command again."""


class ServerUnfit(ServerError):
    """The server answers but cannot carry a batch; the message says why and what to change."""


class ReplyError(ServerError):
    """The server answered one command with an error. `code` is its first word, such as `NOSCRIPT`."""

    def __init__(self, text: str) -> None:
        """`text` is the server's error line."""
        self.code = text.split(" ", 1)[0]
        super().__init__(text)


class ViolationError(EvalbusError):
    """A history, vector or check shows that an invariant does not hold."""

    exit_code = 5
