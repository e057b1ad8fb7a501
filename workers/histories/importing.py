"""`evalbus import`: a history that was exported, put back into a server, for looking at.

The file is replayed first, to its end: what is not true is refused before anything is written. Then it is read a second
time, and written. Both times memory grows with the runs of the batch, not with its entries.

What an export of the imported batch gives is the file again, byte for byte. So what is true, and spelt in another way
than an export spells it, is refused too.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bus.cluster import open_bus
from bus.connection import Endpoint, check_fit
from bus.errors import InputError, ServerError
from bus.export import export
from bus.export_format import Line, chained
from bus.imported.writing import Import
from bus.port import BatchInfo, BatchSpec, BatchStatus
from bus.redis_bus import RedisBus
from bus.replay.lines import Footer, Header, Lines
from bus.replay.replayed import Replay, Replayed
from bus.replay.telling import DiffersError, Told
from bus.retiring import clear
from bus.types import BatchId, Plane
from workers.histories.history_files import LONGEST_LINE, name_of, reading
from workers.histories.replaying import replay_file
from workers.naming import batch_name
from workers.runtime import SystemRuntime

__all__ = ["Source", "checked", "import_on", "put_back", "say"]


@dataclass(frozen=True, slots=True)
class Source:
    """A history that is true, and can be read again."""

    name: str
    """How messages name it."""
    path: Path
    header: Header
    found: Replayed

    @property
    def batch(self) -> BatchId:
        """Whose history it is."""
        return BatchId(self.found.batch)

    @property
    def plane(self) -> Plane:
        """The batch's."""
        return Plane(self.found.plane)


@contextlib.contextmanager
def checked(file: str, plane: Plane | None) -> Iterator[Source]:
    """Replay a file, `-` for standard input. `plane`: the one that was asked for, if one was.

    Raises InputError for what is no export, not all of one, or of another plane; DiffersError for what is not true.
    """
    name = name_of(file)
    with _readable_twice(file) as path:
        with reading(path) as lines:
            header = Lines(name).first(lines.readline(LONGEST_LINE))
        _check_place(header, name, plane)
        yield Source(name, path, header, _replayed(file, path))


def _check_place(header: Header, name: str, plane: Plane | None) -> None:
    batch_name(header.batch)  # or it would be another batch's key
    if header.plane not in list(Plane):
        raise InputError(f"is of a plane that there is not: {header.plane!r}", file=name)
    if plane is not None and header.plane != plane:
        raise InputError(
            f"batch {header.batch!r} is of the {header.plane} plane, not of {plane}",
            file=name,
            remedy="leave --plane out",
        )


@contextlib.contextmanager
def _readable_twice(file: str) -> Iterator[Path]:
    """The file itself; a copy of what can be read once only: standard input, a pipe."""
    path = Path(file)
    if file != "-" and (path.is_file() or not path.exists()):
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="evalbus-import-") as copy:
        with reading(file) as lines:
            shutil.copyfileobj(lines, copy)
        copy.flush()
        yield Path(copy.name)


def _replayed(file: str, path: Path) -> Replayed:
    if path == Path(file):
        return replay_file(path, None)
    replay = Replay(name_of(file))
    with reading(path) as lines:
        while raw := lines.readline(LONGEST_LINE):
            replay.feed(raw)
    return replay.finish()


async def import_on(endpoint: Endpoint, source: Source) -> None:
    """The command, on a server. Raises ServerUnfit, and as `put_back`."""
    await check_fit(endpoint.target, plane=source.plane)
    bus = open_bus(endpoint, SystemRuntime(), plane=source.plane)
    try:
        await put_back(await bus.of(source.batch), source)
    finally:
        await bus.aclose()


async def put_back(bus: RedisBus, source: Source) -> None:
    """Write a history's batch, on its own plane; afterwards it is there as a whole.

    Raises InputError when there is a batch of that name; ServerError: then nobody sees what was written, and the next
    import of the name removes it.
    """
    left = await bus.tombstone(source.batch)
    if left is not None and not left.cleared:  # a prune was interrupted; what it would go on to delete comes back here
        await clear(bus, {source.batch: left})
    one = Import(bus.link, bus.keys(source.batch), source.header, SystemRuntime().token())
    await one.begin()
    try:
        await _copy(bus, source, one)
    except ServerError:
        raise
    except BaseException:
        with contextlib.suppress(ServerError):
            await one.give_up()
        raise


async def _copy(bus: RedisBus, source: Source, one: Import) -> None:
    lines = Lines(source.name)
    with reading(source.path) as file:
        first = file.readline(LONGEST_LINE)
        lines.first(first)
        while raw := file.readline(LONGEST_LINE):
            before = lines.head
            told = lines.next(raw)
            if not isinstance(told, Footer):
                _check_spelling(source, before, told, raw)
                await one.add(told)
        lines.end()
    if lines.head != source.found.head:
        raise InputError("was changed while it was read", file=source.name)
    await _check_first_line(bus, source, one, first)
    await one.finish(source.found)


def _check_spelling(source: Source, before: str, told: Told, raw: bytes) -> None:
    line = Line(told.id, told.fence, told.op, told.verb, told.reason, told.envelope, told.args, told.answer)
    text, _ = chained(before, line)
    if not raw.startswith(f'{text[:-1]},"chain":"'.encode()):
        raise DiffersError(source.name, told.line, "is spelt in another way than an export spells it")


async def _check_first_line(bus: RedisBus, source: Source, one: Import, first: bytes) -> None:
    """It is no part of the chain: an export makes it from the declaration."""
    try:
        spec = BatchSpec.from_json(one.declared["spec"])
    except (TypeError, ValueError) as error:
        raise InputError("declares a batch in a way that this release does not know", file=source.name) from error
    info = BatchInfo(spec, BatchStatus.OPEN, source.plane, "")
    async for line in export(bus.link, source.plane, source.batch, info, None, bus.shard):
        if line.encode() != first:
            raise DiffersError(source.name, 1, "is spelt in another way than an export spells it")
        return


def say(source: Source) -> None:
    """What there is now, on standard error."""
    found = source.found
    what = f"{BatchStatus(found.status).shown}, {found.entries:,} decisions, head {found.head}"
    print(f"batch {source.batch} ({source.plane}) can be looked at: {what}", file=sys.stderr)
