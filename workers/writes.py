"""A run's workspace as its solver has it: what is put on the disk is told to the bus, under the workspace's epoch.

A directory dies with its attempt. So each write has a receipt that is joined with the next event of the transcript: a
successor learns that files were written which it does not have, and does not go on as if it had them.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bus.types import Digest
from workers.conversation import Conversation
from workers.processes.commands import Finished
from workers.trees import TreeError, ignored, tree_hash
from workers.workspace import DEFAULT_TIMEOUT, Workspace

__all__ = ["FencedWorkspace"]


class FencedWorkspace(Workspace):
    """A workspace whose writes are reported."""

    def __init__(self, workspace: Workspace, conversation: Conversation, ignore: Sequence[str]) -> None:
        """`ignore`: patterns of what is not sealed, and so is nobody's loss."""
        super().__init__(workspace.path, workspace.limits, workspace.values)
        self._conversation, self._ignore = conversation, ignore

    async def write(self, relative: str, content: str | bytes) -> None:
        """See Workspace."""
        await super().write(relative, content)
        data = content.encode() if isinstance(content, str) else content
        name = self.locate(relative).relative_to(self.path.resolve()).as_posix()
        await self._conversation.wrote(name, Digest(hashlib.sha256(data).hexdigest()))

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: str | bytes = b"",
        timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109 - see Workspace
        env: Mapping[str, str] | None = None,
    ) -> Finished:
        """See Workspace. A command that has changed anything is one write: of the tree as it left it."""
        async with self.watched():
            return await super().run(argv, stdin=stdin, timeout=timeout, env=env)

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """See Workspace."""
        before = await asyncio.to_thread(_glance, self.path, self._ignore)
        yield
        if await asyncio.to_thread(_glance, self.path, self._ignore) != before:
            await self._conversation.wrote(".", await asyncio.to_thread(self._tree))

    def _tree(self) -> Digest:
        try:
            return Digest(tree_hash(self.path, self._ignore))
        except (TreeError, OSError):  # a socket, a name that is no text: sealing it will say so
            seen = sorted(_glance(self.path, self._ignore))
            return Digest(hashlib.sha256(repr(seen).encode()).hexdigest())


@dataclass(frozen=True, slots=True, order=True)
class _Seen:
    """A file as its directory tells it, without reading it."""

    path: str
    mode: int
    size: int
    changed: int


def _glance(top: Path, ignore: Sequence[str]) -> frozenset[_Seen]:
    """What can be seen of a tree without reading a file: enough to tell whether a command has changed anything."""
    seen = set()
    for folder, folders, files in os.walk(top):
        for name in (*folders, *files):
            path = os.path.join(folder, name)  # noqa: PTH118 - a Path for each file of a tree is what takes the time
            if ignored(os.path.relpath(path, top), ignore):
                continue
            try:
                found = os.lstat(path)
            except OSError:
                continue
            is_file = name in files
            seen.add(_Seen(path, found.st_mode, found.st_size if is_file else 0, found.st_mtime_ns if is_file else 0))
    return frozenset(seen)
